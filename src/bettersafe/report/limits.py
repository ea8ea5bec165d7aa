"""Limits of the data, assumptions, and settings of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.certificate.certificate import MARKOV, steps_words
from bettersafe.evaluation.facts import ESTIMATORS
from bettersafe.logs.describe import FEW
from bettersafe.methods.facts import facts_of
from bettersafe.runs.info import ESTIMATED
from bettersafe.text.gains import baseline_text, return_text
from bettersafe.text.headlines import optimised_for
from bettersafe.text.names import ALL_STEPS, clean, doubt_of, in_words, logged_steps, proposed, shorten, with_titles
from bettersafe.text.numbers import counted, number, percent

if TYPE_CHECKING:
    from bettersafe.runs.run import Run
    from bettersafe.typing import Row


BINS = (
    (0, 0, "never"),
    (1, 9, "1 to 9 times"),
    (10, 99, "10 to 99"),
    (100, 999, "100 to 999"),
    (1000, None, "1,000 or more"),
)

TITLES = {"logged": "as logged (the baseline)"} | {name: facts.title for name, facts in ESTIMATORS.items()}
"""Titles of the estimators, and of the logged returns."""

TEST_SETTINGS = {
    "estimator": "Estimator of the test",
    "bound": "Bound of the test",
    "levels": "Risk per objective",
    "coverage": "Coverage by the test episodes",
    "selection": "Rule of H-OPT",
    "draws": "Draws",
}
SETTINGS_SHOWN = {
    "held-out": ("estimator", "bound", "levels", "coverage"),
    "safety-test": ("estimator", "bound", "levels", "coverage", "selection"),
    "posterior": ("draws",),
    "theory": (),
}
"""Settings shown for each kind of evidence."""


def coverage_bars(run: Run) -> list[tuple[str, float, float]]:
    """Share of decisions of baseline and proposal, by how often the action was tried in that state."""
    visits = run.counts.sum(axis=1)
    weight = visits / max(int(visits.sum()), 1)
    tried = np.flatnonzero(run.counts)  # few of a large table; only these need a bin
    place = np.searchsorted([low for low, _, _ in BINS], run.counts.take(tried), side="right") - 1
    of_tried = weight.take(tried // run.counts.shape[1])
    never = run.counts == 0
    shares = []
    for table in (run.baseline, run.proposal):
        share = np.bincount(place, weights=of_tried * table.take(tried), minlength=len(BINS))
        share[0] = weight @ table.sum(axis=1, where=never)
        shares.append(share.tolist())
    return [(label, *both) for (_, _, label), *both in zip(BINS, *shares, strict=True)]


def limits(run: Run, bars: list[tuple[str, float, float]]) -> list[str]:
    """Sentences about the limits of the data; ``bars`` from `coverage_bars`."""
    tried = run.counts > 0
    pairs, possible = int(tried.sum()), run.info.n_states * run.info.n_actions
    given = run.state_labels.size - run.info.n_states  # states of the baseline file that the log does not have
    few = int(np.sum(tried & (run.counts < FEW)))
    per_state = tried.sum(axis=1)
    single, never = int(np.sum(per_state == 1)), int(np.sum(per_state == 0)) - given
    rare = [sum(bar[column] for bar in bars[:2]) for column in (1, 2)]  # type: ignore[misc]
    texts = [
        f"{pairs:,} of {possible:,} combinations of state and action were ever tried ({percent(pairs / max(possible, 1))}); {few:,} of"
        f" them fewer than {FEW} times. The data says nothing about decisions that were never tried.",
        f"{percent(rare[1])} of the {proposed(run)}’s decisions, and {percent(rare[0])} of the baseline’s, were tried fewer than {FEW}"
        " times in that state."
        if run.has_proposal
        else f"{percent(rare[0])} of the baseline’s decisions were tried fewer than {FEW} times in that state.",
    ]
    if single:
        texts.append(f"In {counted(single, 'state')} only one action was ever tried, so there is nothing to compare.")
    if never:
        texts.append(
            f"{counted(never, 'state')} {'was' if never == 1 else 'were'} reached, but no decision was logged there."
        )
    if run.info.states_kept:
        texts.append(f"{counted(len(run.info.states_kept), 'state')} could not be solved; the baseline is kept there.")
    if run.info.horizon is not None:
        texts.append(f"{optimised_for(run)}.")
    certificate = run.certificate
    if certificate is None:
        texts.append("Nothing was tested: this run has no certificate.")
        return texts
    if certificate.doubted:
        because, meaning = doubt_of(certificate.doubted)
        texts.append(f"{because[0].upper()}{because[1:]}. {meaning}")
    if certificate.unsupported > 0.0:
        texts.append(f"The baseline never takes {percent(certificate.unsupported)} of the {proposed(run)}’s decisions.")
    if certificate.refusal:
        texts.append(f"The test can’t tell, for {clean(certificate.refusal)}.")
    trust = certificate.diagnostics.get("trust")
    if trust:
        estimator = TITLES.get(str(certificate.settings.get("estimator")), "the estimate")
        texts.append(f"The estimate that was tested, {estimator}: {clean(trust)}")
    if certificate.theory is not None and not any(proof.informative for proof in certificate.theory.proofs):
        texts.append("The bounds from the counts alone are uninformative: they are wider than the range of returns.")
    return texts


def rarely_tried(run: Run, most: int = 10) -> list[Row]:
    """Decisions that the proposal takes more often although they were tried fewer than 10 times, largest weight first."""
    rise = run.proposal - run.baseline
    raised = np.flatnonzero((rise >= 5e-4) & (run.counts < FEW))
    weight = rise.take(raised) * run.counts.sum(axis=1).take(raised // rise.shape[1])
    del rise
    rows = []
    for place in np.argsort(-weight, kind="stable")[:most]:
        x, a = divmod(int(raised[place]), run.proposal.shape[1])
        if weight[place] <= 0.0:
            break
        rows.append(
            {
                "state": shorten(run.state_labels[x]),
                "action": shorten(run.action_labels[a], 60),
                "count": int(run.counts[x, a]),
                "before": percent(float(run.baseline[x, a])),
                "after": percent(float(run.proposal[x, a])),
            }
        )
    return rows


@dataclass(frozen=True, kw_only=True)
class EstimatorRow:
    """Returns by one estimator, with its diagnostics, as text.

    Attributes:
        key: Name of the estimator.
        name: Its title.
        cells: Return of every objective.
        complete: Whether the returns are of all steps up to the horizon.
        ess: Effective episodes.
        weight: Mean weight.
        unseen: Share of decisions that the baseline never takes.
        usable: Whether the estimates are usable.
        trust: Why they are usable or not.
        decided: Whether it was the estimator of the test.
    """

    key: str
    name: str
    cells: list[str]
    complete: bool
    ess: str = "–"
    weight: str = "–"
    unseen: str = "–"
    usable: bool = True
    trust: str = ""
    decided: bool = False


@dataclass(frozen=True, kw_only=True)
class EstimatesTable:
    """Estimates of the same steps; the first row is the baseline's return."""

    caption: str
    steps: str
    rows: list[EstimatorRow]


def estimates(run: Run) -> list[EstimatesTable]:
    """Tables of off-policy estimates: of all steps up to the horizon, and of the logged steps where episodes are cut off."""
    rows = estimators(run)
    if not rows:
        return []
    logged = run.evaluation[0]
    steps = steps_words(logged["horizon"]) or ("" if logged["complete"] else ALL_STEPS)
    tables = []
    for whole, words in ((True, steps), (False, f"logged steps only, {logged_steps(logged)}")):
        own = [row for row in rows if row.complete is whole]
        if not own:
            continue
        if logged["complete"] is not whole:  # the logged returns are of other steps
            own.insert(0, _baseline_row(run, next((row for row in own if row.decided), own[0])))
        caption = f"Off-policy estimates, {words}" if words else "Off-policy estimates"
        tables.append(EstimatesTable(caption=caption, steps=words[:1].upper() + words[1:], rows=own))
    return tables


def _baseline_row(run: Run, by: EstimatorRow) -> EstimatorRow:
    """The baseline's return by an estimator, as a row without diagnostics; its weights are all 1."""
    own = {row["objective"]: row for row in run.evaluation if row["estimator"] == by.key}
    cells = [baseline_text(own[o.name]) for o in run.objectives]
    return EstimatorRow(key="baseline", name=f"the baseline, by {by.name}", cells=cells, complete=by.complete)


def estimators(run: Run) -> list[EstimatorRow]:
    """Off-policy estimates with diagnostics, one row per estimator."""
    rows = []
    for name in dict.fromkeys(row["estimator"] for row in run.evaluation):
        own = {row["objective"]: row for row in run.evaluation if row["estimator"] == name}
        first = next(iter(own.values()))
        weighted = name not in ("logged", "model")
        rows.append(
            EstimatorRow(
                key=name,
                name=TITLES.get(name, shorten(name)),
                cells=[return_text(own[o.name]) if o.name in own else "–" for o in run.objectives],
                complete=first["complete"],
                ess=f"{first['effective_sample_size']:,.0f} of {first['episodes']:,}" if weighted else "–",
                weight=number(first["mean_weight"], decimals=2) if weighted else "–",
                unseen=percent(first["unsupported_share"]) if name != "logged" else "–",
                usable=bool(first["usable"]),
                trust=clean(first["trust"]),
                decided=run.certificate is not None and name == run.certificate.settings.get("estimator"),
            )
        )
    return rows


def assumptions(run: Run) -> list[str]:
    """Assumptions of the certificate; without a certificate, those of the estimated model."""
    if run.certificate is not None:
        return [with_titles(text, run) for text in run.certificate.assumptions]
    known = run.info.baseline_source != ESTIMATED
    return [
        MARKOV,
        "The baseline is known."
        if known
        else "The baseline was estimated from the data; errors of that estimate are not accounted for.",
        "The estimated model is treated as the true one: the returns shown are estimates.",
    ]


def checks(run: Run) -> list[tuple[str, bool]]:
    """Checks whether the state is enough, of the log that the policy was made from: a sentence, and whether it is against the model."""
    if run.certificate is None:
        return []
    return [(in_words(check), check.against) for check in run.certificate.checks]


def settings(run: Run) -> list[tuple[str, str]]:
    """Settings of the run, as (name, value)."""
    info = run.info
    facts = facts_of(info.method)
    rows = [
        ("Method", f"{facts.title}: {facts.sentence}"),
        ("Budget ε", number(info.epsilon, trim=True) if facts.budget else "none"),
        ("Risk δ", f"{info.delta:g}"),
        *([("Error function", info.error_kind)] if facts.budget else []),
        ("Value of decisions never tried", info.unseen),
        ("Horizon", steps_words(info.horizon) or "no limit"),
        ("Baseline", info.baseline_source),
        ("States, actions", f"{info.n_states:,}, {run.action_labels.size:,}"),
        ("Data", info.data.path),
        ("Made from", f"{counted(info.data.rows, 'decision')} in {counted(info.data.episodes, 'episode')}"),
    ]
    certificate = run.certificate
    if certificate is not None:
        tested = certificate.data.get("tested_on", {})
        if tested:
            rows.append(
                (
                    "Tested on" if certificate.by_test else "Evaluated on",
                    f"{tested.get('path', '')}: {tested.get('rows', 0):,} decisions in {tested.get('episodes', 0):,} episodes",
                )
            )
        rows += [
            (TEST_SETTINGS[key], str(certificate.settings[key]))
            for key in SETTINGS_SHOWN[certificate.evidence]
            if certificate.settings.get(key) is not None
        ]
        if certificate.seed is not None:
            rows.append(("Seed", str(certificate.seed)))
    if facts.posterior:  # no rounds of its own
        rows.append(("Evaluated", counted(len(info.candidates), "candidate")))
    else:
        rows.append(("Solved", f"{counted(info.rounds, 'round')} by {info.engine}, optimality gap {info.gap:.1e}"))
    rows += [
        ("Created", info.created),
        ("Versions", ", ".join(f"{name} {value}" for name, value in info.versions.items())),
    ]
    return [(name, shorten(value, 400)) for name, value in rows]


def notes(run: Run) -> list[str]:
    """Notes of the reader and of the test, without duplicates."""
    tested = [] if run.certificate is None else run.certificate.settings.get("notes") or []
    return [shorten(note, 400) for note in dict.fromkeys(map(str, [*run.info.notes, *tested]))]
