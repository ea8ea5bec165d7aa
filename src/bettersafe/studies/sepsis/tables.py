"""Tables of the sepsis study in Markdown: estimates, exact values if known, and the paper's values."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from bettersafe.evaluation.facts import ESTIMATORS
from bettersafe.methods.facts import METHODS
from bettersafe.studies.rules import RULES
from bettersafe.studies.sepsis.plan import ABOUT, CHOSEN, DELTAS, EPSILONS, MAIN, OPE, PREFERENCES, REMOVED_BELOW
from bettersafe.studies.sepsis.published import COLUMNS, FREQUENCY, REMOVED, VALUES, VASOPRESSORS
from bettersafe.studies.sepsis.summary import (
    CLINICIAN,
    HARM,
    VISIBLE,
    by_key,
    errors_by_ess,
    false_comfort,
    key,
    knows_truth,
    summarise_sepsis,
    with_chosen,
    worse,
)
from bettersafe.studies.tables import NONE, markdown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from bettersafe.studies.sepsis.summary import Key
    from bettersafe.typing import Row

MARK = " ▼"
OBJECTIVES = {"survival": "Survival return (more is better)", "rare": "Rare-treatment return (less is better)"}
ADVISED: tuple[Key, ...] = (
    CLINICIAN,
    ("1,0", "linearized", ""),
    ("1,1", "s-opt", CHOSEN),
    ("0,1", "s-opt", CHOSEN),
)
"""Policies whose treatments are compared, as in the paper."""


def sepsis_tables(rows: pa.Table, study_id: str, *, note: str = "") -> str:
    """The tables of a sepsis study as one Markdown page.

    Args:
        rows: Rows of the study.
        study_id: Id of the study, such as ``sepsis/icu``.
        note: Sentence at the top of the page, such as that the sweep is unfinished.
    """
    chosen = with_chosen(rows)
    summary = summarise_sepsis(chosen)
    records = by_key(summary)
    true = knows_truth(summary)
    page = [
        f"# {study_id}",
        f"{ABOUT[study_id]}.",
        *([note] if note else []),
        _notes(records[CLINICIAN], paper_words(rows), true=true),
    ]
    main = [policy for policy in main_keys() if policy in records]  # a study may leave out B-OPT
    page += _section("Table 1: the methods, for each preference λ", records, main, true=true)
    page += ["ε of S-OPT was chosen for each seed on the validation part:", _choices(chosen)]
    page += _section("S-OPT over ε (ε = ∞ is Adv-Linearized)", records, _over_epsilon(), true=true)
    if true:
        page += _truth_about_estimates(rows)
    for estimator in OPE:
        title = f"H-OPT over δ, tested with {estimator.upper()}"
        page += _section(title, records, _over_delta(estimator), true=true)
    page += ["## Vasopressors where clinicians usually give none", _vasopressors(records)]
    page += ["## How usual the advised treatment is", _frequency(records)]
    page += [
        f"## Pairs seen fewer than {REMOVED_BELOW} times: removed, or a second objective",
        _removed(by_key(summary, rare_below=REMOVED_BELOW), true=true),
    ]
    return "\n\n".join(page) + "\n"


def sepsis_summary(rows: pa.Table) -> pa.Table:
    """Summary table for summary.csv: every policy, and S-OPT with the chosen ε."""
    return summarise_sepsis(with_chosen(rows))


def main_keys() -> list[Key]:
    """The policies of Table 1."""
    keys = [CLINICIAN]
    for preference in PREFERENCES:
        keys += [(preference, name, parameter) for name, parameters in MAIN.items() for parameter in parameters]
    return keys


def policy_name(policy: Key) -> str:
    """Display name of a policy without its preference: "S-OPT ε = 0.1" for ``s-opt`` and ``0.1``."""
    _, method, parameter = policy
    if method not in METHODS:
        return {
            "clinician": "Clinician (π_b)",
            "linearized, rare removed": "Linearized, rare pairs removed from the data",
        }[method]
    facts = METHODS[method]
    if parameter == CHOSEN:
        return f"{facts.title}, ε chosen"
    if facts.episodes:
        estimator, delta, *rule = parameter.split()
        words = ", ".join([estimator.upper(), *(RULES[name].title for name in rule)])
        return f"{facts.title} ({words}) δ = {delta}"
    if facts.posterior:
        return f"{facts.title} δ = {parameter}"
    return f"{facts.title} ε = {parameter}" if facts.budget else facts.title


def preference_name(policy: Key) -> str:
    """Preference as text, such as "[1, 0]"; the clinician has none."""
    return NONE if policy == CLINICIAN else f"[{policy[0].replace(',', ', ')}]"


def with_sd(record: Row, column: str, digits: int = 2) -> str:
    """Mean ± standard deviation over seeds."""
    text = f"{record[column]:.{digits}f}".replace("-", "−")
    sd = record[f"{column}_sd"]
    return text if math.isnan(sd) else f"{text} ± {sd:.{digits}f}"


def paper_words(rows: pa.Table) -> str:
    """Note on the paper's values, depending on the cohort of the rows."""
    outcome = rows["outcome"][0].as_py() if "outcome" in rows.column_names else None  # only for a prepared cohort
    if outcome == "died_in_hosp":
        return "Paper: also on MIMIC-III, with its own splits and states."
    if outcome is not None:
        return "Paper: also on MIMIC-III, but with deaths in hospital, here within 90 days: compare conclusions, not digits."
    return "Paper: on MIMIC-III, another cohort and another outcome: compare conclusions, not digits."


def _notes(clinician: Row, paper: str, *, true: bool) -> str:
    seeds = clinician["seeds"]
    many = f"{seeds} seeds; ± is the standard deviation over them" if seeds > 1 else "1 seed, so no standard deviations"
    lines = [
        f"{many}. ▼: worse than the clinician in the same column, by {VISIBLE:g} or more. ESS: effective sample size of the"
        f" estimate, out of {clinician['test_episodes']:.0f} test patients. Model: in-sample estimate by the model from which the"
        " policy was computed.",
    ]
    if true:
        lines.append(
            "Exact: value in the simulator, unknown to a user of a log. Worse in truth: seeds in which the policy"
            f" loses more than {HARM:g} on some objective."
        )
    return " ".join([*lines, paper])


def _section(title: str, records: Mapping[Key, Row], keys: Sequence[Key], *, true: bool) -> list[str]:
    """A section with one table per objective."""
    page = [f"## {title}"]
    for objective, heading in OBJECTIVES.items():
        head = ["λ", "policy", "DR", "paper", "WDR", "paper", "model"]
        head += ["exact", "ESS", "worse in truth"] if true else ["ESS"]
        body = []
        for policy in keys:
            record = records[policy]
            line = [preference_name(policy), policy_name(policy)]
            for estimator in OPE:
                column = f"{estimator}_{objective}"
                line += [_marked(record, records[CLINICIAN], column), _paper(policy, column)]
            line.append(_marked(record, records[CLINICIAN], f"model_{objective}"))
            line += [_marked(record, records[CLINICIAN], f"true_{objective}")] if true else []
            line.append(with_sd(record, "ess", 0))
            line += [_of_seeds(record)] if true else []
            body.append(line)
        page += [f"**{heading}**", markdown(head, body, words=2)]
    return page


def _over_epsilon() -> list[Key]:
    keys = [CLINICIAN]
    for preference in PREFERENCES:
        keys += [(preference, "s-opt", f"{epsilon:g}") for epsilon in EPSILONS]
        keys.append((preference, "adv-linearized", ""))
    return keys


def _over_delta(estimator: str) -> list[Key]:
    keys = [CLINICIAN]
    for preference in PREFERENCES:
        keys += [(preference, "h-opt", f"{estimator} {delta:g}") for delta in DELTAS]
    return keys


def _choices(rows: pa.Table) -> str:
    """Table of how often each ε was chosen."""
    found = [record for record in rows.to_pylist() if record["parameter"] == CHOSEN]
    body = [
        [
            f"[{preference.replace(',', ', ')}]",
            *(_times(found, preference, epsilon) for epsilon in EPSILONS),
        ]
        for preference in PREFERENCES
    ]
    return markdown(["λ", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)], body)


def _times(found: Sequence[Row], preference: str, epsilon: float) -> str:
    times = sum(key(record)[0] == preference and record["epsilon"] == epsilon for record in found)
    return str(times) if times else NONE


def _vasopressors(records: Mapping[Key, Row]) -> str:
    head = ["λ", "policy", "states without", "given one", "given a large one", "paper: of 722, given", "large"]
    body = []
    for policy in ADVISED:
        record = records[policy]
        there = VASOPRESSORS.get(policy)
        share = record["given_vaso"] / record["states_without_vaso"]
        body.append(
            [
                preference_name(policy),
                policy_name(policy),
                with_sd(record, "states_without_vaso", 0),
                f"{with_sd(record, 'given_vaso', 0)} ({share:.1%})",
                with_sd(record, "given_large_vaso", 0),
                *((NONE, NONE) if there is None else (f"{there[1]} ({there[1] / there[0]:.1%})", str(there[2]))),
            ]
        )
    return markdown(head, body, words=2)


def _frequency(records: Mapping[Key, Row]) -> str:
    head = ["λ", "policy", "times seen", "paper", "share of the state's decisions", "paper"]
    body = []
    for policy in ADVISED:
        record = records[policy]
        there = FREQUENCY.get(policy)
        share = f"{record['advised_share_seen']:.1%}"
        if not math.isnan(record["advised_share_seen_sd"]):
            share += f" ± {record['advised_share_seen_sd']:.1%}"
        body.append(
            [
                preference_name(policy),
                policy_name(policy),
                with_sd(record, "advised_times_seen", 1),
                NONE if there is None else f"{there[0]:.1f}",
                share,
                NONE if there is None else f"{there[1]:.1%}",
            ]
        )
    return markdown(head, body, words=2)


def _removed(records: Mapping[Key, Row], *, true: bool) -> str:
    shown = ["dr_survival", "wdr_survival", "true_survival", "dr_rare", "true_rare"]
    columns = [column for column in shown if true or not column.startswith("true")]
    names = {name: ESTIMATORS[name].acronym for name in ("dr", "wdr")} | {"true": "exact"}
    head = [f"{column.split('_')[1]}, {names[column.split('_')[0]]}" for column in columns]
    head = ["λ", "policy", head[0], "paper", *head[1:], "ESS", *(["worse in truth"] if true else [])]
    body = []
    for policy, record in records.items():
        there = REMOVED.get(policy)
        cells = [_marked(record, records[CLINICIAN], column) for column in columns]
        cells.insert(1, NONE if there is None else f"{there:.2f}")
        cells += [with_sd(record, "ess", 0), *([_of_seeds(record)] if true else [])]
        body.append([preference_name(policy), policy_name(policy), *cells])
    return markdown(head, body, words=2)


def _marked(record: Row, clinician: Row, column: str) -> str:
    return with_sd(record, column) + (MARK if worse(record, clinician, column) else "")


def _paper(policy: Key, column: str) -> str:
    """The paper's mean ± sd, with its own violations marked by the same rule."""
    if policy not in VALUES:
        return NONE
    n = 2 * COLUMNS.index(column)
    mean, sd = VALUES[policy][n : n + 2]
    own = VALUES[CLINICIAN][n]
    loss = mean - own if column.endswith("_rare") else own - mean
    return f"{mean:.2f} ± {sd:.2f}".replace("-", "−") + (MARK if loss >= VISIBLE else "")


def _truth_about_estimates(rows: pa.Table) -> list[str]:
    """Tables of estimation errors by ESS, and the number of policies wrongly accepted by the estimates."""
    bands = errors_by_ess(rows)
    page = [
        "## Errors of the estimates",
        "Over all policies of the paper's methods that differ from the clinician's, for all λ, parameters and seeds. Error:"
        " estimate − exact value; its median, the median of its absolute value, its 10 % and 90 % quantiles. Error of"
        " the gain: estimated − exact difference from the clinician; median and median absolute value.",
    ]
    head = ["ESS", "estimate", "policies", "error", "its size", "10 % to 90 %", "error of the gain", "its size"]
    for objective, heading in OBJECTIVES.items():
        body = []
        for band, what in itertools.product(bands, (*OPE, "model")):
            name = f"{what}_{objective}"
            high = " or more" if math.isinf(band["high"]) else f" to {band['high']:g}"
            body.append(
                [
                    f"{band['low']:g}{high}",
                    what if what == "model" else what.upper(),
                    str(band["policies"]),
                    _signed(band[name]),
                    f"{band[f'{name}_size']:.2f}",
                    f"{_signed(band[f'{name}_from'])} to {_signed(band[f'{name}_to'])}",
                    _signed(band[f"{name}_gain"]),
                    f"{band[f'{name}_gain_size']:.2f}",
                ]
            )
        page += [f"**{heading}**", markdown(head, body, words=2)]
    fine, harmed = false_comfort(rows)
    return [
        *page,
        f"By DR and WDR on the test part, {fine} of these policies are no worse than the clinician on both objectives;"
        f" {harmed} of the {fine} are worse in truth, by more than {HARM:g}.",
    ]


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")  # no −0.00


def _of_seeds(record: Row) -> str:
    return f"{round(record['harmed'] * record['seeds'])} of {record['seeds']}"
