"""Random worlds (Garnets): how often each method fails where nothing suits its assumptions, under weak and near-optimal baselines.

30 states, 4 actions, every pair its own 4 successors and reward. Every step ends the episode with probability 0.05; or every pair
has a probability of its own, from Beta(0.5, 9.5), so that most hardly ever end it and some do every fifth time. λ = (1, 0): the first
objective is pursued, the second only protected. A baseline of quality ρ is ρ π* + (1 − ρ) times a random policy. Recorded is

    improvement   100 (J_0(π) − J_0(π_b)) / J_0(π_b), in the true process
    failure       for some k, J_k(π) < J_k(π_b) − TOL · J_k(π_b)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from bettersafe.envs.random_mdp import garnet, mixed_policy
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.errors import ParameterError, check_probability
from bettersafe.logs.dataset import split
from bettersafe.mdp.constrained import optimal_policy
from bettersafe.mdp.values import expected_return
from bettersafe.model import estimate_model
from bettersafe.studies.gridworld import SAFETY_SHARE, TOL, Case, Row, draws_for
from bettersafe.studies.panels import (
    Frame,
    bars_note,
    delta_line,
    delta_text,
    draw_lines,
    methods_of,
    new_figure,
    rate_limit,
    subtitle,
)  # fmt: skip
from bettersafe.studies.summary import METHOD, summarise, with_intervals
from bettersafe.studies.sweep import Study
from bettersafe.studies.tables import SE_NOTE, by_size, with_interval, with_se, words

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

STUDY = "garnet/bopt"
ABOUT = "B-OPT and G-OPT beside the paper's methods in random worlds, under weak and near-optimal baselines"
WORLDS = 250
DIFFERENT_ENDS = (0.5, 9.5)
SIZES = (20, 100, 400)
PREFERENCE = np.array([1.0, 0.0])


@dataclass(frozen=True, kw_only=True)
class Family:
    """Worlds of one kind, with baselines of one quality.

    Attributes:
        title: In words.
        quality: ρ.
        ends_differ: Whether pairs end episodes at different rates.
    """

    title: str
    quality: float
    ends_differ: bool


FAMILIES = {
    "weak": Family(title="a weak (random) baseline", quality=0.0, ends_differ=False),
    "good": Family(title="a near-optimal baseline", quality=0.9, ends_differ=False),
    "weak, ends differ": Family(title="a weak baseline, ends differ", quality=0.0, ends_differ=True),
    "good, ends differ": Family(title="a near-optimal baseline, ends differ", quality=0.9, ends_differ=True),
}
METHODS = (
    "adv-linearized", "s-opt 0.1", "s-opt 1.0", "h-opt published dr", "h-opt sequential dr", "g-opt 0.1", "g-opt 1.0", "b-opt",
)  # fmt: skip


def garnet_study(*, worlds: int | None = None, delta: float | None = None, seed: int = 0) -> Study:
    """The study over ``worlds`` random worlds of each family (250 if left out) at risk ``delta`` (0.1 if left out)."""
    n, allowed = WORLDS if worlds is None else worlds, 0.1 if delta is None else delta
    check_probability("delta", allowed)
    if n < 1:
        raise ParameterError(f"a study needs at least 1 world; got {n}.")
    return Study(
        id=STUDY,
        version=2,
        jobs=tuple(
            {"cmdp": world, "family": family, "delta": allowed, "draws": draws_for(allowed), "seed": seed}
            for world in range(n)
            for family in FAMILIES
        ),
        work="bettersafe.studies.garnet:experiment",
    )


def experiment(settings: dict[str, Any]) -> list[Row]:
    """All sizes and methods in one world with one baseline."""
    seed, cmdp, delta = (settings[key] for key in ("seed", "cmdp", "delta"))
    family = FAMILIES[settings["family"]]
    number = round(10 * family.quality) + 100 * family.ends_differ
    rng = np.random.default_rng([seed, cmdp, number])
    world = garnet(rng, end=rng.beta(*DIFFERENT_ENDS, size=120)) if family.ends_differ else garnet(rng)
    truth = true_mdp(world)
    baseline = mixed_policy(rng, optimal_policy(truth, np.ones(2)), family.quality)
    before = expected_return(truth, baseline)
    rows = []
    for size in SIZES:
        own = np.random.default_rng([seed, cmdp, number, size])
        data = sample_episodes(world, baseline, size, own)
        train, safety = split(data, (1.0 - SAFETY_SHARE, SAFETY_SHARE), own)
        case = Case(
            truth=truth,
            baseline=baseline,
            before=before,
            model=estimate_model(data, delta=delta),
            train_model=estimate_model(train, delta=delta),
            data=data,
            safety=safety,
            delta=delta,
            draws=settings["draws"],
            draws_seed=int(own.integers(2**32)),
            max_rounds=100,
        )
        for method, after in case.returns(list(METHODS), PREFERENCE).items():
            name, _, parameter = method.partition(" ")
            gain = (after - before) / before  # returns of these worlds are positive
            rows.append(
                {
                    "episodes": size,
                    "method": name,
                    "parameter": parameter,
                    "improvement": 100.0 * float(PREFERENCE @ gain),
                    "failure": bool(np.any(gain < -TOL)),
                }
            )
    return rows


def garnet_tables(rows: pa.Table, *, note: str = "") -> str:
    """The tables as one Markdown page; ``note`` is a sentence for its head."""
    first = summarise(rows)["cmdps"][0].as_py()
    delta = rows["delta"][0].as_py()
    page = [f"# {STUDY}", ABOUT + ".", *([note] if note else [])]
    page.append(
        f"{first} {'world' if first == 1 else 'worlds'} of each family, δ = {delta:g}, λ = (1, 0). Improvement in % of the baseline's return; {SE_NOTE.replace('CMDP', 'world')}."
        " Failure: worse on some objective. In brackets the 95 % interval of Clopper and Pearson, behind it the number of worlds."
    )
    for name, family in FAMILIES.items():
        here = rows.filter(pc.equal(rows["family"], name))
        if here.num_rows == 0:
            continue
        found = [with_intervals(summarise(here, by)) for by in ((*METHOD, "episodes"), METHOD)]
        records = {(words(r), r.get("episodes")): r for part in found for r in part.to_pylist()}
        page.append(f"## {family.title[0].upper() + family.title[1:]}, ρ = {family.quality:g}")
        page += by_size(records, SIZES, "failure rate", with_interval)
        page += by_size(records, SIZES, "improvement, %", lambda r: with_se(r["improvement"], r["improvement_se"], 1))
    return "\n\n".join(page) + "\n"


def garnet_summary(rows: pa.Table) -> pa.Table:
    """The summary for spreadsheets."""
    return with_intervals(summarise(rows, ("family", *METHOD, "episodes")))


def draw_garnet(rows: pa.Table, *, note: str = "") -> dict[str, Figure]:
    """Improvement and failures against the size of the log, a row for each family."""
    records = summarise(rows, (*METHOD, "episodes", "family")).to_pylist()
    methods = methods_of(records)
    figure = new_figure(
        Frame(
            title=f"Random worlds: improvement over the baseline, and failures, {delta_text(rows)}",
            subtitle=subtitle(records, "30 states, 4 actions, λ = (1, 0)", note).replace("CMDP", "world"),
            notes=(
                bars_note(records).replace("CMDP", "world"),
                "Failure: worse than the baseline on some objective. |D|: episodes in the log.",
            ),
            methods=methods,
            width=10.0,
            height=11.0,
        )
    )
    panels = figure.subplots(len(FAMILIES), 2, sharex=True)
    top = rate_limit(records, rows)
    for (gain, rate), (name, family) in zip(panels, FAMILIES.items(), strict=True):
        here = [record for record in records if record["family"] == name]
        draw_lines(gain, here, methods, "improvement", sizes=SIZES)
        draw_lines(rate, here, methods, "failure", sizes=SIZES)
        gain.set_title(family.title[0].upper() + family.title[1:])
        gain.set_ylabel("Improvement, %")
        rate.set_ylabel("Failure rate")
        delta_line(rate, rows, top)
    for axes in panels[-1]:
        axes.set_xlabel("Episodes in the log, |D|")
    return {"garnet": figure}
