"""What the explorer answers: settings in, a JSON document out. No HTTP here, and nothing that the library does not say itself.

Counts, baseline, model and priors are made once (`open_session`). Then, for any settings (λ, ε, δ, ζ),

    solve     S-OPT (or Soft-SPIBB) in the estimated model; depends on λ, ε and δ
    answer    what the estimated model says of the policy, and where decisions change
    believe   what the posterior says of it, linearised (`posterior.linearised_gains`): quick, and good for looking around
    keep      the run that `bettersafe improve` makes of the same settings, by the same functions, written to disk

A session is read-only; `Memory` keeps the last few solutions, since an answer, a belief and a change of ζ ask for the same one.
"""

from __future__ import annotations

import math
import re
import shlex
import threading
from collections import OrderedDict
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from bettersafe._system.files import check_free
from bettersafe.errors import ParameterError, RunError, check_choice, did_you_mean
from bettersafe.logs._reader.files import data_digest
from bettersafe.logs.dataset import Columns, Objective, user_sign
from bettersafe.mdp.values import policy_values
from bettersafe.methods import METHODS
from bettersafe.posterior.candidates import Spread, linearised_candidates, linearised_spread
from bettersafe.posterior.priors import Posterior, all_priors, only_played
from bettersafe.report import write_report
from bettersafe.runs.run import MARK, largest_changes, make_run, save_run
from bettersafe.tasks.inputs import (
    by_objective,
    check_ranges,
    check_size,
    task_baseline,
    task_counts,
    task_dataset,
    task_model,
    task_outcomes,
    task_priors,
    visit_table,
)
from bettersafe.tasks.run import run_task, task_improve
from bettersafe.tasks.task import Task
from bettersafe.typing import Event, Floats, Progress, ignore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from bettersafe.logs.counts import Counts
    from bettersafe.methods.result import Improvement
    from bettersafe.model import Model

T = TypeVar("T")
Priors = tuple[Posterior, list[Posterior]]
BLAS = ThreadpoolController()

SHOWN = 50
"""States in the table of changes."""

SAME = 1e-6
"""Returns that differ by less than this share of their size are called the same."""

LARGEST = 1e9
"""No weight, budget or accepted loss is larger: what is more is a slip of the finger, and would overflow."""

REMEMBERED = 64
REMEMBERED_BYTES = 64_000_000
"""Solutions kept: at most so many, and of at most so many bytes."""

RUN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")

EVIDENCE = (
    "A belief, not a test: the probability given all of this data, under a neutral prior and under priors that expect the worst of"
    " what was seldom tried, computed by a quick first-order approximation of the posterior. The same data made the policy. Nothing"
    " is promised until the policy is kept and certified."
)
MODEL_EVIDENCE = (
    "What the model estimated from the log says. The policy was chosen in that same model, so its gains are optimistic."
)


class SettingError(ParameterError):
    """A field of a request is not what it may be."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field


@dataclass(frozen=True, kw_only=True)
class Session:
    """All that is made once.

    Attributes:
        task: What was asked for on the command line; settings are put over it.
        base: The task file, if one was given, for spelling the command.
        task_file: Its name.
        counts: Of the log.
        baseline: π_b, shape [X, A].
        source: Where the baseline came from.
        model: The model at the task's δ.
        priors: Posteriors under the neutral prior and under the pessimistic ones, one per objective (`all_priors`).
        usual: The same of what the baseline plays alone: enough for nearly every policy, and its tables are made only once.
        digest: sha256 of the log.
    """

    task: Task
    base: Task | None
    task_file: str | None
    counts: Counts
    baseline: Floats
    source: str
    model: Model
    priors: Priors
    usual: Priors
    digest: str

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """Of the log and derived ones, length d."""
        return self.counts.objectives


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What people move: λ [d], ε, δ and ζ [d]."""

    preference: tuple[float, ...]
    epsilon: float
    delta: float
    zeta: tuple[float, ...]

    @property
    def policy_key(self) -> tuple[tuple[float, ...], float, float]:
        """What the policy depends on."""
        return self.preference, self.epsilon, self.delta


def open_session(
    task: Task,
    *,
    base: Task | None = None,
    task_file: str | None = None,
    progress: Progress | None = None,
) -> Session:
    """Read and count the log, and make the model and the priors.

    Args:
        task: Of a method that is explorable, with nothing held out.
        base: The task file as read, if one was given.
        task_file: Its name.
        progress: Called at every step, and while the log is read.
    """
    say = progress or ignore
    if task.method == "auto":
        task = replace(task, method="s-opt")
    offered = [name for name, facts in METHODS.items() if facts.explorable]
    check_choice("the method to explore", task.method, offered)
    if task.share > 0.0:
        raise ParameterError(
            "the explorer works with all of the log: hold nothing out, and test what you keep with: bettersafe certify RUN HELD_OUT."
        )
    say(Event(what="Reading and counting"))
    counts = task_counts(task, progress=progress)
    check_size(task, counts)
    check_ranges(counts.objectives, counts.reward_min, counts.reward_max)
    zeta = by_objective(task.zeta, counts.objectives, "zeta", otherwise=0.0)
    if np.any(zeta < 0.0):
        raise ParameterError(f"an accepted loss can't be negative; got {task.zeta}.")
    baseline, source = task_baseline(task, counts)
    say(Event(what="Estimating the model"))
    model = task_model(task, counts, baseline)
    say(Event(what="Making the priors"))
    outcomes = task_outcomes(
        task_dataset(task, progress=progress), visit_table(counts), task.derived, counts.objectives
    )
    priors = all_priors(outcomes, task_priors(task), baseline_v=policy_values(model.mdp, baseline)[0])
    return Session(
        task=task,
        base=base,
        task_file=task_file,
        counts=counts,
        baseline=baseline,
        source=source,
        model=model,
        priors=priors,
        usual=(only_played(priors[0], baseline > 0.0), [only_played(prior, baseline > 0.0) for prior in priors[1]]),
        digest=data_digest(task.data),
    )


def first_settings(session: Session) -> Settings:
    """Where the exploration starts: as the task says."""
    return Settings(
        preference=tuple(objective.weight for objective in session.objectives),
        epsilon=session.task.budget,
        delta=session.task.delta,
        zeta=tuple(by_objective(session.task.zeta, session.objectives, "zeta", otherwise=0.0).tolist()),
    )


# Reading what a page sends


def read_settings(document: Any, session: Session) -> Settings:
    """Settings from JSON; every field must be there, known, and in its range.

    Raises:
        SettingError: Naming the field.
    """
    table = read_fields(document, "settings", ("preference", "epsilon", "delta", "zeta"))
    epsilon = table["epsilon"]
    return Settings(
        preference=_by_name(table["preference"], "preference", session),
        epsilon=math.inf if epsilon == "inf" else _number(epsilon, "epsilon", 0.0, LARGEST, ' or "inf"'),
        delta=_number(table["delta"], "delta", 1e-12, 1.0),
        zeta=_by_name(table["zeta"], "zeta", session),
    )


def read_fields(
    document: Any, where: str, needed: tuple[str, ...], optional: tuple[str, ...] = ()
) -> Mapping[str, Any]:
    """A JSON object with the fields that it must and may have, and no other."""
    if not isinstance(document, dict):
        raise SettingError(where, f"must be an object with {', '.join(needed)}; got {_brief(document)}.")
    for name in document:
        if name not in (*needed, *optional):
            known = (*needed, *optional)
            raise SettingError(
                _brief(name, quote=False),
                f"is not a field of {where}; there are {', '.join(known)}.{did_you_mean(name, known)}",
            )
    for name in needed:
        if name not in document:
            raise SettingError(name, f"is missing from {where}.")
    return document


def _by_name(table: Any, field: str, session: Session) -> tuple[float, ...]:
    names = tuple(objective.name for objective in session.objectives)
    values = read_fields(table, field, names)
    return tuple(_number(values[name], f"{field}.{name}", 0.0, LARGEST) for name in names)


def _number(value: Any, field: str, low: float, high: float, more: str = "") -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise SettingError(field, f"must be a number from {low:g} to {high:g}{more}; got {_brief(value)}.")
    return float(value)


def read_search(value: Any) -> str:
    """Text to look for in the names of states and actions."""
    if not isinstance(value, str) or len(value) > 100:
        raise SettingError("search", f"must be text of at most 100 characters; got {_brief(value)}.")
    return value


def read_name(value: Any) -> str:
    """A name for a run: never a path."""
    if not isinstance(value, str) or RUN_NAME.fullmatch(value) is None:
        raise SettingError(
            "name",
            f"must be 1 to 64 letters, digits, dots, hyphens and underscores, beginning with none of . and -; got {_brief(value)}.",
        )
    return value


def _brief(value: Any, *, quote: bool = True) -> str:
    text = repr(value) if quote else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def settings_json(settings: Settings, session: Session) -> dict[str, Any]:
    """The inverse of `read_settings`."""
    names = [objective.name for objective in session.objectives]
    return {
        "preference": dict(zip(names, settings.preference, strict=True)),
        "epsilon": settings.epsilon if math.isfinite(settings.epsilon) else "inf",
        "delta": settings.delta,
        "zeta": dict(zip(names, settings.zeta, strict=True)),
    }


# Answers


def explored_task(session: Session, settings: Settings) -> Task:
    """The task that `improve` would be given."""
    task, weights = session.task, settings.preference
    n = len(task.objectives)
    zeta = {
        objective.name: loss
        for objective, loss in zip(session.objectives, settings.zeta, strict=True)
        if loss != 0.0 or objective.name in task.zeta
    }
    return replace(
        task,
        objectives=tuple(replace(o, weight=w) for o, w in zip(task.objectives, weights[:n], strict=True)),
        derived=tuple(replace(rare, weight=w) for rare, w in zip(task.derived, weights[n:], strict=True)),
        epsilon=settings.epsilon,
        delta=settings.delta,
        zeta=zeta,
    )


def solve(session: Session, settings: Settings) -> Improvement:
    """The policy of these settings, as `improve` makes it."""
    task = explored_task(session, settings)
    model = session.model
    if task.delta != model.delta:
        model = task_model(task, session.counts, session.baseline)
    objectives = tuple(
        replace(objective, weight=weight)
        for objective, weight in zip(session.objectives, settings.preference, strict=True)
    )
    return task_improve(task, model, session.baseline, objectives)


def spread(session: Session, policy: Floats) -> Spread:
    """Means and spreads of the policy's gains under the neutral and the pessimistic priors."""
    inside = not np.any(policy[session.baseline <= 0.0])
    with BLAS.limit(limits=1, user_api="blas"):  # such small products are slower on several cores than on one
        return linearised_spread(policy[None], session.baseline, *(session.usual if inside else session.priors))


def answer(session: Session, settings: Settings, found: Improvement, *, search: str = "") -> dict[str, Any]:
    """What the estimated model says of a policy, and where decisions change.

    Args:
        session: The session.
        settings: What was asked.
        found: Of `solve`.
        search: Only states whose name, or the name of an action that changes there, has this text.
    """
    changes, n_found = _changes(session, found, search)
    gain = found.policy_return - found.baseline_return
    return {
        "settings": settings_json(settings, session),
        "status": found.status + _hint(session, found),
        "evidence": MODEL_EVIDENCE,
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
    """What to try where protection of many objectives in every state leaves nothing."""
    if found.changed.size or session.task.method != "s-opt" or len(session.objectives) < 3 or not any(found.preference):
        return ""
    return (
        f" S-OPT protects each of {len(session.objectives)} objectives in every state; bettersafe improve, which protects them"
        " over the whole, may find more."
    )


def side(gain: float, before: float, after: float) -> str:
    """Which side of the baseline a gain is on: "better", "worse" or "same"."""
    if abs(gain) <= SAME * max(abs(before), abs(after)):
        return "same"
    return "better" if gain > 0.0 else "worse"


def _moved_share(session: Session, found: Improvement) -> float:
    """Share of the log's decisions that would go elsewhere: Σ_x n(x) Σ_a |π − π_b|/2 over Σ_x n(x)."""
    visits = np.bincount(
        session.counts.pair_state, weights=session.counts.pair_count, minlength=session.counts.n_states
    )
    return float(visits @ found.distance / 2.0 / max(visits.sum(), 1.0))


def _changes(session: Session, found: Improvement, search: str) -> tuple[list[dict[str, Any]], int]:
    """The largest changes by visits times probability moved, and how many states there were to choose from."""
    run = make_run(found, session.model, session.objectives)
    rows = found.changed
    if search:
        text = search.casefold()
        named = np.array([text in str(label).casefold() for label in run.state_labels[rows]], dtype=bool)
        actions = np.array([text in str(label).casefold() for label in run.action_labels], dtype=bool)
        moves = np.any((run.policy != run.baseline)[np.ix_(rows, np.flatnonzero(actions))], axis=1)
        rows = rows[named | moves]
    part = replace(
        run,
        policy=run.policy[rows],
        baseline=run.baseline[rows],
        counts=run.counts[rows],
        state_labels=run.state_labels[rows],
    )
    listed = [
        {
            "state": change.state,
            "visits": change.visits,
            "moved": change.moved,
            "less": [list(move) for move in _seen(change.less)],
            "more": [list(move) for move in _seen(change.more)],
        }
        for change in largest_changes(part, SHOWN)
    ]
    return listed, int(rows.size)


def _seen(moves: Sequence[tuple[str, float, float]]) -> Sequence[tuple[str, float, float]]:
    """The three largest moves that can be seen in print, or the largest if none can."""
    return [move for move in moves[:3] if abs(move[2] - move[1]) >= 5e-4] or moves[:1]


def believe(session: Session, settings: Settings, found: Improvement, linearised: Spread | None) -> dict[str, Any]:
    """What the posterior says of a policy, linearised; ``linearised`` (of `spread`) is None where it is the baseline itself.

    The rule is B-OPT's (`posterior.judge`) without its draws: P(no objective loses more than ζ) ≥ 1 − δ under the neutral prior, with the
    gains taken for normal (`normal_p_safe`), and Σ_k P(k loses more | the prior that is pessimistic for k) ≤ δ.
    """
    document: dict[str, Any] = {"settings": settings_json(settings, session), "evidence": EVIDENCE}
    if linearised is None:
        return {**document, "level": "baseline", "verdict": found.status, "objectives": []}
    zeta = np.array(settings.zeta)
    one = linearised_candidates(["explored"], [found.policy], linearised, zeta, settings.delta)[0]
    p_safe = one.p_safe
    p_dark = float(max(0.0, 1.0 - np.sum(1.0 - one.p_pessimistic)))
    level = "likely" if min(p_safe, p_dark) >= 1.0 - settings.delta else "doubtful"
    return {
        **document,
        "level": level,
        "verdict": _verdict(session, settings, p_safe, p_dark, np.fmin(one.p_objective, one.p_pessimistic), level),
        "p_safe": p_safe,
        "p_pessimistic": p_dark,
        "objectives": [
            {
                "name": objective.name,
                "gain": float(one.gain[k]),
                "low": float(one.interval[0, k]),
                "high": float(one.interval[1, k]),
                "model_above": bool(found.policy_return[k] - found.baseline_return[k] > one.interval[1, k]),
                "p_no_worse": float(one.p_objective[k]),
                "p_no_worse_pessimistic": float(one.p_pessimistic[k]),
            }
            for k, objective in enumerate(session.objectives)
        ],
    }


def _verdict(session: Session, settings: Settings, p_safe: float, p_dark: float, each: Floats, level: str) -> str:
    but = " beyond the loss you accept" if any(settings.zeta) else ""
    chance = f"{about(p_safe)} (expecting the worst: {at_least(p_dark)})"
    if level == "likely":
        return f"Probably safe: no objective is worse{but} with probability {chance}."
    doubt = session.objectives[int(np.argmin(each))].title
    return (
        f"In doubt: no objective is worse{but} with probability {chance}; you ask for {100.0 * (1.0 - settings.delta):.4g} %."
        f" The doubt is mostly about {doubt}."
    )


def about(p: float) -> str:
    """A probability that was estimated, for people: rounded down, and never certainty."""
    if p > 0.999:
        return "over 99.9 %"
    return f"about {math.floor(100.0 * p + 1e-9)} %" if p >= 0.01 else "under 1 %"


def at_least(p: float) -> str:
    """A lower bound on a probability for people: rounded down, and never certainty; 0 says nothing, and is told so."""
    if p <= 0.0:
        return "can't be told, the chances of a loss on each objective add up to 100 % and more"
    parts = 10.0 if p > 0.99 or p < 0.01 else 1.0
    return f"at least {min(math.floor(100.0 * p * parts + 1e-9) / parts, 99.9):g} %"


def describe_session(session: Session, folder: Path) -> dict[str, Any]:
    """What the page needs to draw itself."""
    start = first_settings(session)
    found = solve(session, replace(start, epsilon=0.0))
    heaviest = max(start.preference, default=0.0)
    return {
        "method": session.task.method,
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
    """The next 1, 2 or 5 times a power of ten; 1 for nothing."""
    value = max(value, 2.0 * least)
    if value <= 0.0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= value * (1.0 - 1e-12))


# Keeping


def keep(session: Session, settings: Settings, name: str, folder: Path) -> dict[str, Any]:
    """Make the run that `improve` makes of these settings, and save it as ``folder/name``.

    Args:
        session: The session.
        settings: What to keep.
        name: Checked by `read_name`.
        folder: Where runs go.
    """
    target = folder / read_name(name)
    if (target / MARK).is_file():
        raise RunError(f"{target} already has a run; choose another name.")
    check_free(target, mark=MARK, force=False)
    task = explored_task(session, settings)
    run = run_task(task)
    if run.info["data"]["sha256"] != session.digest:
        raise RunError(
            f"{task.data} has changed since the explorer was started, so what was shown is not what would be kept. Start it again."
        )
    save_run(run, target)
    page = write_report(target)
    words = improve_command(session, task, target)
    return {
        "path": str(target),
        "report": str(page),
        "command": None if words is None else shlex.join(words),
        "verdict": run.info["status"] if run.certificate is None else run.certificate.verdict,
        "next": shlex.join(["bettersafe", "certify", str(target), task.data, "--posterior"]) if run.changed else None,
        "name": free_name(folder),
    }


def free_name(folder: Path) -> str:
    """The first of kept-1, kept-2, … that is not taken."""
    n = 1
    while (folder / f"kept-{n}").exists():
        n += 1
    return f"kept-{n}"


def improve_command(session: Session, task: Task, output: Path) -> list[str] | None:
    """The command line that gives the same run; None where only a task file can say it (several derived objectives)."""
    base = session.base or Task(data=task.data, objectives=())
    if len(task.derived) > 1 and task.derived != base.derived:
        return None
    words = ["bettersafe", "improve", task.data, "-o", str(output)]
    if session.task_file is not None:
        words += ["--task", session.task_file]
    for field in fields(Columns):
        name = getattr(task.columns, field.name)
        if name != getattr(base.columns, field.name):
            words += [f"--{field.name.replace('_', '-')}", str(name)]
    known = {objective.name: objective for objective in base.objectives}
    for objective in task.objectives:
        words += ["--objective", f"{objective.name}={_text(objective.weight)}"]
    for objective in task.objectives:
        old = known.get(objective.name, Objective(name=objective.name))
        if objective.lower_is_better and not old.lower_is_better:
            words += ["--lower-is-better", objective.name]
        if objective.discount != old.discount:
            words += ["--discount", f"{objective.name}={_text(objective.discount)}"]
        if objective.reward_range is not None and objective.reward_range != old.reward_range:
            low, high = objective.reward_range
            words += ["--reward-range", f"{objective.name}={_text(low)}..{_text(high)}"]
    if task.derived != base.derived:
        rare = task.derived[0]
        words += ["--rare-below", str(rare.below), "--rare-reward", _text(rare.reward)]
        words += ["--rare-weight", _text(rare.weight)]
    for key in ("zeta", "threshold"):
        old_values = getattr(base, key)
        for name, value in getattr(task, key).items():
            if old_values.get(name) != value:
                words += [f"--{key}", f"{name}={_text(value)}"]
    plain = (
        "baseline", "method", "epsilon", "delta", "error_kind", "support", "unseen", "engine", "estimator", "bound",
        "selection", "levels", "comparison", "draws", "seed",
    )  # fmt: skip
    for key in plain:
        value = getattr(task, key)
        if value is not None and value != getattr(base, key):
            words += [f"--{key.replace('_', '-')}", _text(value)]
    return words


def _text(value: float | str) -> str:
    """As the command line reads it back to the last digit."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


class Memory:
    """The last few solutions of a session; may be asked from several threads, of which one solves, one believes and one keeps."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.keeping = threading.Lock()
        size = max(int(session.baseline.nbytes), 1)
        most = max(2, min(REMEMBERED, REMEMBERED_BYTES // size))
        self._solved: _Last[Improvement] = _Last(most)
        self._spread: _Last[Spread] = _Last(most)

    def answer(self, settings: Settings, *, search: str = "") -> dict[str, Any]:
        """`answer`, solving only what was not solved before."""
        return answer(self.session, settings, self._solution(settings), search=search)

    def believe(self, settings: Settings) -> dict[str, Any]:
        """`believe`, likewise."""
        found = self._solution(settings)
        if not found.changed.size:
            return believe(self.session, settings, found, None)
        linearised = self._spread.get(settings.policy_key, lambda: spread(self.session, found.policy))
        return believe(self.session, settings, found, linearised)

    def keep(self, settings: Settings, name: str, folder: Path) -> dict[str, Any]:
        """`keep`, one at a time."""
        with self.keeping:
            return keep(self.session, settings, name, folder)

    def _solution(self, settings: Settings) -> Improvement:
        return self._solved.get(settings.policy_key, lambda: solve(self.session, settings))


class _Last(Generic[T]):
    """The last few of what was asked for; one is made at a time."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._made: OrderedDict[Any, T] = OrderedDict()

    def get(self, key: Any, make: Callable[[], T]) -> T:
        with self._lock:
            if key not in self._made:
                self._made[key] = make()
                while len(self._made) > self.most:
                    self._made.popitem(last=False)
            self._made.move_to_end(key)
            return self._made[key]
