"""Where a proposal differs from the baseline, and which objectives to show first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.errors import check_type
from bettersafe.runs.run import Run

if TYPE_CHECKING:
    from bettersafe.typing import Floats, Ints, Labels


@dataclass(frozen=True, kw_only=True)
class Change:
    """One state where the proposal differs from the baseline."""

    state: str
    visits: int
    moved: float  # probability that goes to other actions, Σ|π − π_b|/2
    less: tuple[tuple[str, float, float], ...]  # (action, baseline, proposal), largest fall first
    more: tuple[tuple[str, float, float], ...]  # largest rise first


def largest_changes(run: Run, n: int = 10) -> list[Change]:
    """The states where the proposal moves most probability, weighted by how often the data visits them.

    Args:
        run: The run.
        n: How many, at most.

    Examples:
        >>> from bettersafe.runs import largest_changes
        >>> [change.state for change in largest_changes(run, 2)]
        ['3', '4']
    """
    check_type("run", run, Run)
    return changes_between(run.baseline, run.proposal, run.counts, run.state_labels, run.action_labels, n)


def changes_between(
    baseline: Floats, policy: Floats, counts: Ints, state_labels: Labels, action_labels: Labels, n: int
) -> list[Change]:
    """The ``n`` states where ``policy`` [X, A] moves most probability, weighted by their visits in ``counts`` [X, A]."""
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
"""So few objectives with a weight are shown even where nothing about them is in doubt."""


def deciding(run: Run, most: int) -> list[int]:
    """At most so many objectives to show first, in their own order: the few that are pursued, and those that most decide.

    By the certificate, the least sure first; without one, by the gain in the estimated model relative to the baseline.
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
