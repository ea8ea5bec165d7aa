"""Answers of the explorer: estimates of the model and the posterior for a policy, as JSON documents for the page."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.explore.requests import settings_json
from bettersafe.explore.session import first_settings, solve
from bettersafe.logs.counts import visit_table
from bettersafe.logs.dataset import user_sign
from bettersafe.methods.facts import METHODS
from bettersafe.posterior.candidates import linearised_candidates
from bettersafe.runs.changes import changes_between
from bettersafe.text.names import ALL_STEPS
from bettersafe.text.numbers import about, at_least

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bettersafe.explore.session import Session, Settings
    from bettersafe.methods.result import Improvement
    from bettersafe.posterior.candidates import Spread
    from bettersafe.typing import Floats, Json

SHOWN = 50
"""Number of states in the table of changes."""

SAME = 1e-6
"""Returns with a smaller relative difference are called the same."""

PESSIMISTIC = "under pessimistic priors, which expect the worst of rarely tried decisions"
EVIDENCE = (
    "A belief, not a test: the probability given all of this data, under {priors}, computed by a fast first-order approximation"
    " of the posterior.{events} The policy was made from the same data, and how much too good it looks to them is not taken off here. Nothing is"
    " guaranteed until the policy is kept and certified."
)
MODEL_EVIDENCE = (
    "“Model” is the return in the model estimated from the log{steps}. The policy was chosen in the same model, so its gains there are"
    " optimistic."
)


def answer(session: Session, settings: Settings, found: Improvement, *, search: str = "") -> Json:
    """Returns of a policy in the estimated model, and the states where decisions change.

    Args:
        session: The session.
        settings: Settings of the request.
        found: Result of `solve`.
        search: Text that the name of a listed state, or of an action that changes there, must contain.
    """
    changes, n_found = _changes(session, found, search)
    gain = found.policy_return - found.baseline_return
    return {
        "settings": settings_json(settings, session),
        "status": found.status + _hint(session, found),
        "evidence": MODEL_EVIDENCE.format(steps=f" ({ALL_STEPS})" if session.counts.n_truncated else ""),
        "objectives": [
            {
                "name": objective.name,
                "baseline": user_sign(objective, float(found.baseline_return[k])),
                "policy": user_sign(objective, float(found.policy_return[k])),
                "gain": float(gain[k]),
                "side": side(float(gain[k]), float(found.baseline_return[k]), float(found.policy_return[k])),
            }
            for k, objective in enumerate(session.objectives)
        ],
        "preferred_gain": float(found.preference @ gain),
        "states": int(found.distance.size),
        "changed": int(found.changed.size),
        "moved": _moved_share(session, found),
        "converged": found.converged,
        "unsolved": int(found.kept.size),
        "matching": n_found,
        "changes": changes,
    }


def _hint(session: Session, found: Improvement) -> str:
    """Advice if protecting many objectives in every state leaves nothing to change."""
    facts = METHODS[session.task.method]
    if found.changed.size or not facts.proven or len(session.objectives) < 3 or not any(found.preference):
        return ""
    return (
        f" {facts.title} protects each of {len(session.objectives)} objectives in every state; bettersafe improve, which protects"
        " expected returns, may find more."
    )


def side(gain: float, before: float, after: float) -> str:
    """Sign of a gain in words: "better", "worse" or "same"."""
    if abs(gain) <= SAME * max(abs(before), abs(after)):
        return "same"
    return "better" if gain > 0.0 else "worse"


def _moved_share(session: Session, found: Improvement) -> float:
    """Share of the log's decisions that would be different: Σ_x n(x) Σ_a |π − π_b|/2 over Σ_x n(x)."""
    visits = np.bincount(
        session.counts.pair_state, weights=session.counts.pair_count, minlength=session.counts.n_states
    )
    return float(visits @ found.distance / 2.0 / max(visits.sum(), 1.0))


def _changes(session: Session, found: Improvement, search: str) -> tuple[list[Json], int]:
    """Largest changes by visits times probability moved, and the number of states that match."""
    states, actions = session.counts.state_labels, session.counts.action_labels
    rows = found.changed
    if search:
        text = search.casefold()
        named = np.array([text in str(label).casefold() for label in states[rows]], dtype=bool)
        wanted = np.array([text in str(label).casefold() for label in actions], dtype=bool)
        moves = np.any((found.policy != found.baseline)[np.ix_(rows, np.flatnonzero(wanted))], axis=1)
        rows = rows[named | moves]
    counts = visit_table(session.counts)[rows]
    listed = [
        {
            "state": change.state,
            "visits": change.visits,
            "moved": change.moved,
            "less": [list(move) for move in _seen(change.less)],
            "more": [list(move) for move in _seen(change.more)],
        }
        for change in changes_between(found.baseline[rows], found.policy[rows], counts, states[rows], actions, SHOWN)
    ]
    return listed, int(rows.size)


def _seen(moves: Sequence[tuple[str, float, float]]) -> Sequence[tuple[str, float, float]]:
    """The three largest moves that are not rounded to 0, or the largest if all are."""
    return [move for move in moves[:3] if abs(move[2] - move[1]) >= 5e-4] or moves[:1]


def believe(session: Session, settings: Settings, found: Improvement, linearised: Spread | None) -> Json:
    """Linearised posterior of a policy's gains; ``linearised`` (from `spread`) is None if the policy is the baseline.

    The rule is B-OPT's (`posterior.judge`) without draws, and without the optimism that only B-OPT measures: P(no objective loses more than ζ) ≥ 1 − δ under the neutral prior, with
    normal gains (`normal_p_safe`), and Σ_k P(k loses more | the prior that is pessimistic for k) ≤ δ.
    """
    pessimistic = session.task.pessimism > 0.0
    events = ", ".join(event.name for event in session.task.events)
    evidence = EVIDENCE.format(
        priors=f"a neutral prior{' and ' + PESSIMISTIC if pessimistic else ''}",
        events=f" Declared events are in it ({events}); the model in which the policy is made does not have them."
        if events
        else "",
    )
    document: Json = {"settings": settings_json(settings, session), "evidence": evidence}
    if linearised is None:
        return {**document, "level": "baseline", "verdict": found.status, "objectives": []}
    zeta = np.array(settings.zeta) + session.rounding
    one = linearised_candidates(["explored"], [found.policy], linearised, zeta, settings.delta)[0]
    p_safe = one.p_safe
    p_pessimistic = float(max(0.0, 1.0 - np.sum(1.0 - one.p_pessimistic)))
    level = "likely" if min(p_safe, p_pessimistic) >= 1.0 - settings.delta else "doubtful"
    return {
        **document,
        "level": level,
        "verdict": _verdict(
            session, settings, p_safe, p_pessimistic, np.fmin(one.p_objective, one.p_pessimistic), level
        ),
        "p_safe": p_safe,
        "p_pessimistic": p_pessimistic if pessimistic else None,
        "objectives": [
            {
                "name": objective.name,
                "gain": float(one.gain[k]),
                "low": float(one.interval[0, k]),
                "high": float(one.interval[1, k]),
                "model_above": bool(found.policy_return[k] - found.baseline_return[k] > one.interval[1, k]),
                "p_no_worse": float(one.p_objective[k]),
                "p_no_worse_pessimistic": float(one.p_pessimistic[k]) if pessimistic else None,
            }
            for k, objective in enumerate(session.objectives)
        ],
    }


def _verdict(
    session: Session, settings: Settings, p_safe: float, p_pessimistic: float, each: Floats, level: str
) -> str:
    but = " beyond the accepted loss" if any(settings.zeta) else ""
    worst = f" (if pessimistic: {at_least(p_pessimistic)})" if session.task.pessimism > 0.0 else ""
    chance = f"{about(p_safe)}{worst}"
    if level == "likely":
        return f"Believed: no objective is worse{but} with probability {chance}. It was not tested."
    doubt = session.objectives[int(np.argmin(each))].title
    return (
        f"In doubt: no objective is worse{but} with probability {chance}; {100.0 * (1.0 - settings.delta):.4g} % is required."
        f" The least certain objective is {doubt}."
    )


def describe_session(session: Session, folder: Path) -> Json:
    """Initial data of the page."""
    start = first_settings(session)
    found = solve(session, replace(start, epsilon=0.0))
    heaviest = max(start.preference, default=0.0)
    facts = METHODS[session.task.method]
    return {
        "method": {"title": facts.title, "sentence": facts.sentence, "protects": facts.proven},
        "settings": settings_json(start, session),
        "objectives": [
            {
                "name": objective.name,
                "title": objective.title,
                "unit": objective.unit,
                "lower_is_better": objective.lower_is_better,
                "discount": objective.discount,
                "baseline": user_sign(objective, float(found.baseline_return[k])),
                "zeta_to": _round_up(0.2 * abs(float(found.baseline_return[k])), start.zeta[k]),
            }
            for k, objective in enumerate(session.objectives)
        ],
        "preference_to": _round_up(2.0 * heaviest, 0.0),
        "data": {
            "path": session.task.data,
            "sha256": session.digest,
            "rows": session.counts.n_rows,
            "episodes": session.counts.n_episodes,
            "states": session.counts.n_states,
            "actions": session.counts.n_actions,
        },
        "baseline_source": session.source,
        "notes": list(session.counts.notes),
        "thresholds": dict(session.task.threshold),
        "folder": str(folder),
    }


def _round_up(value: float, least: float) -> float:
    """The next 1, 2 or 5 times a power of ten; 1 for 0."""
    value = max(value, 2.0 * least)
    if value <= 0.0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= value * (1.0 - 1e-12))
