"""All kinds of worlds of the gauntlet, by name."""

from __future__ import annotations

from bettersafe.studies.gauntlet.choose import CHOOSE
from bettersafe.studies.gauntlet.confirm import CONFIRM
from bettersafe.studies.gauntlet.fifth import FIFTH
from bettersafe.studies.gauntlet.fourth import FOURTH
from bettersafe.studies.gauntlet.fresh import FRESH
from bettersafe.studies.gauntlet.instance import Instance, Kind, best_safe, best_safe_gain, sample_log, true_gain
from bettersafe.studies.gauntlet.seventh import SEVENTH
from bettersafe.studies.gauntlet.sixth import SIXTH

__all__ = ["KINDS", "Instance", "Kind", "best_safe", "best_safe_gain", "sample_log", "true_gain"]

KINDS: dict[str, Kind] = {kind.name: kind for kind in (*CHOOSE, *CONFIRM, *FRESH, *FOURTH, *FIFTH, *SIXTH, *SEVENTH)}
