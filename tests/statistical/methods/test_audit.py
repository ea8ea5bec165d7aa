"""Lower bounds of what B-OPT makes against the truth, in kinds of worlds by which its rules were chosen.

In every world the policy with the largest lower bound is taken, which is where optimism is largest. δ = 0.1 for each objective, so
about 8 of 80 bounds may lie above the truth. A share of 0.07 more is allowed, two standard errors of such a share. Without the
audit and the widening, the bounds of a noisy reward do not hold: the same test finds that fault.
"""

from __future__ import annotations

import sys
import zlib

import numpy as np
import pytest

from bettersafe.methods.b_opt import b_opt
from bettersafe.methods.recipes import CandidateGrid
from bettersafe.model import estimate_model
from bettersafe.posterior.judge import Question
from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.studies.gauntlet.choose import CHOOSE
from bettersafe.studies.gauntlet.instance import sample_log, true_gain

DELTA, TOLERANCE = 0.1, 0.07
KINDS = {kind.name: kind for kind in CHOOSE}


def bounds_above(name, size, seeds, *, audited=True):
    """Whether the lower bounds of objectives lie above the true gain, one row per world with a candidate."""
    found = []
    for seed in seeds:
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        instance = KINDS[name].make(rng)
        data = sample_log(instance, size, rng)
        made = b_opt(
            gather_outcomes(data),
            estimate_model(data),
            instance.baseline,
            preference=instance.preference,
            question=Question(delta=DELTA, form="linearised"),
            grid=CandidateGrid(audited=audited),
            screen=False,
        )
        if made.candidates:
            best = max(made.candidates, key=lambda each, weight=instance.preference: float(weight @ each.least))
            found.append(best.least > true_gain(instance, best.policy) + 1e-6 * instance.scale)
    return np.array(found)


@pytest.mark.slow
def test_lower_bounds_lie_below_the_truth_as_often_as_they_say():
    cases = (("warehouse", 100, range(14)), ("garnet-weak", 20, range(13)), ("pit", 200, range(13)))
    above = np.concatenate([bounds_above(*case) for case in cases])
    assert above.shape[0] >= 35
    assert above.mean() <= DELTA + TOLERANCE


@pytest.mark.slow
def test_without_audit_and_widening_the_bounds_of_noisy_rewards_do_not_hold(monkeypatch):
    for name in ("WIDENING", "PURSUED_WIDENING"):
        monkeypatch.setattr(sys.modules["bettersafe.posterior.judge"], name, 1.0)
    pursued = bounds_above("warehouse", 100, range(14), audited=False)[:, 0]
    assert pursued.mean() > DELTA + 3.0 * TOLERANCE
