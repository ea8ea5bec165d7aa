"""States in which a proposal differs from the baseline, and the objectives to show first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.errors import check_integer, check_type
from bettersafe.runs.run import Run

if TYPE_CHECKING:
    from bettersafe.typing import Floats, Ints, Labels


@dataclass(frozen=True, kw_only=True)
class Change:
    """State in which the proposal differs from the baseline."""

    state: str
    visits: int
    moved: float  # probability moved to other actions, Σ|π − π_b|/2
    less: tuple[tuple[str, float, float], ...]  # (action, baseline, proposal), largest decrease first
    more: tuple[tuple[str, float, float], ...]  # (action, baseline, proposal), largest increase first


def largest_changes(run: Run, n: int = 10) -> list[Change]:
    """The ``n`` states with the largest changes: probability moved by the proposal times visits in the data.

    Args:
        run: Run.
        n: Largest number of states.

    Examples:
        >>> from bettersafe.runs import largest_changes
        >>> [change.state for change in largest_changes(run, 2)]
        ['3', '4']
    """
    check_type("run", run, Run)
    check_integer("n", n, least=0)
    return changes_between(run.baseline, run.proposal, run.counts, run.state_labels, run.action_labels, n)


def changes_between(
    baseline: Floats, policy: Floats, counts: Ints, state_labels: Labels, action_labels: Labels, n: int
) -> list[Change]:
    """The ``n`` states with the largest changes: probability moved by ``policy`` [X, A] times visits in ``counts`` [X, A]."""
    moved = np.abs(policy - baseline).sum(axis=1) / 2.0
    visits = counts.sum(axis=1)
    changes = []
    for x in np.argsort(-moved * visits, kind="stable")[:n]:
        if moved[x] <= 0.0:
            break
        rise = policy[x] - baseline[x]

        def named(actions: Ints, x: int = x) -> tuple[tuple[str, float, float], ...]:
            return tuple((str(action_labels[a]), float(baseline[x, a]), float(policy[x, a])) for a in actions)

        rank = np.argsort(rise, kind="stable")
        changes.append(
            Change(
                state=str(state_labels[x]),
                visits=int(visits[x]),
                moved=float(moved[x]),
                less=named(rank[rise[rank] < 0.0]),
                more=named(rank[::-1][rise[rank[::-1]] > 0.0]),
            )
        )
    return changes


MOST_PURSUED = 4
"""Up to this many objectives with a non-zero weight are always shown."""


def deciding(run: Run, most: int) -> list[int]:
    """Indices of at most ``most`` objectives to show first, in increasing order.

    Objectives with a non-zero weight come first if there are at most `MOST_PURSUED`. The rest are ranked by the certificate,
    most doubtful first; without a certificate, by their gain in the estimated model relative to the baseline, smallest first.
    """
    d = len(run.objectives)
    if d <= most:
        return list(range(d))
    if run.certificate is not None:
        places = {objective.name: k for k, objective in enumerate(run.objectives)}
        order = [places[run.certificate.findings[k].objective] for k in run.certificate.doubt_order]
    else:
        gain = (run.proposal_return - run.baseline_return) / np.maximum(np.abs(run.baseline_return), 1e-12)
        order = np.argsort(gain, kind="stable").tolist()
    pursued = [k for k in range(d) if run.info.preference[k] != 0.0]
    first = pursued if len(pursued) <= MOST_PURSUED else []
    return sorted(list(dict.fromkeys([*first, *order]))[:most])
