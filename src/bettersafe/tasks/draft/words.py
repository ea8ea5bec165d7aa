"""Common names of columns, and words in a name that tell rewards from costs."""

from __future__ import annotations

import json
import re

NAMES: dict[str, tuple[str, ...]] = {
    "next_state": (
        "next_state", "nextstate", "state_next", "next_obs", "next_observation", "new_state", "to_state", "successor",
        "s_next", "next_s", "x_next", "next_x", "s2",
    ),
    "terminated": (
        "terminated", "terminal", "is_terminal", "done", "ended", "is_end", "end", "finished", "final", "is_final",
        "is_last", "last",
    ),
    "truncated": ("truncated", "is_truncated", "timeout", "timed_out", "cut_off", "censored"),
    "baseline_prob": (
        "baseline_prob", "baseline_probability", "behavior_prob", "behaviour_prob", "behavior_probability",
        "behaviour_probability", "logging_prob", "propensity", "propensity_score", "action_prob", "action_probability",
        "prob", "probability", "pi_b", "pib",
    ),
    "episode": (
        "episode", "episode_id", "episodeid", "ep", "trajectory", "trajectory_id", "traj", "traj_id", "stay", "stay_id",
        "icustayid", "icustay_id", "hadm_id", "admission", "admission_id", "encounter", "encounter_id", "patient",
        "patient_id", "subject", "subject_id", "session", "session_id", "case", "case_id", "trip", "trip_id", "job",
        "job_id", "order_id", "user", "user_id", "customer", "customer_id", "run", "run_id", "visit_id", "id",
    ),
    "step": (
        "step", "timestep", "time_step", "step_id", "t", "block", "bloc", "turn", "round", "stage", "period", "tick",
        "seq", "sequence", "visit", "day", "hour", "time", "index",
    ),
    "state": (
        "state", "state_id", "obs", "observation", "cluster", "condition", "status", "context", "situation", "location",
        "position", "cell", "from_state", "s", "x",
    ),
    "action": (
        "action", "action_id", "act", "decision", "treatment", "intervention", "choice", "arm", "dose", "move", "a",
    ),
}  # fmt: skip


NAMES["next_state"] += tuple(f"next_{name}" for name in NAMES["state"])
"""Common column names by role, most specific first. Roles are matched in this order, so that next_state is not taken as a state."""


ALONE = frozenset({"end", "last", "final", "time", "run", "cell", "move", "status"})
"""Names with another meaning inside a longer name: end_date, run_time."""

GAINS = frozenset((
    "reward", "rewards", "r", "return", "gain", "gains", "benefit", "utility", "score", "profit", "revenue",
    "sales", "margin", "survival", "survived", "recovery", "recovered", "outcome", "success", "satisfaction",
    "rating", "quality", "health", "click", "clicks", "conversion", "value",
))  # fmt: skip

COSTS = frozenset((
    "cost", "costs", "price", "prices", "fee", "fees", "fine", "expense", "expenses", "spending", "pain", "harm",
    "harms", "damage", "injury", "injuries", "toxicity", "adverse", "time", "duration", "delay", "delays", "wait",
    "waiting", "latency", "lateness", "late", "overdue", "seconds", "minutes", "hours", "days", "penalty",
    "penalties", "loss", "losses", "risk", "error", "errors", "failure", "failures", "death", "deaths", "died",
    "dead", "mortality", "readmission", "complaint", "complaints", "churn", "violation", "violations", "crash",
    "crashes", "collision", "collisions", "waste", "emission", "emissions", "distress",
))  # fmt: skip
"""Words in a name that suggest a cost (lower is better)."""


def words_of(name: str) -> str:
    """Name in snake case: "NextState", "next-state" and "next state" become next_state."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"\W+|_+", "_", parted).strip("_").lower()


def says(name: str, vocabulary: frozenset[str]) -> str:
    """First word of a name that is in the vocabulary, or an empty string."""
    return next((word for word in words_of(name).split("_") if word.rstrip("0123456789") in vocabulary), "")


def quoted(name: str) -> str:
    """Name as a TOML string on one line."""
    return json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f").replace("\x85", "\\u0085")
