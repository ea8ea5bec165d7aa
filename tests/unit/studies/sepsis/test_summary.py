"""The ε that validation allows, and means and errors over seeds, by hand."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from bettersafe.errors import ParameterError
from bettersafe.studies.sepsis.summary import (
    CLINICIAN,
    by_key,
    errors_by_ess,
    false_comfort,
    summarise_sepsis,
    with_chosen,
)
from study_rows import sepsis_row


# ---- the choice of ε
def test_the_largest_epsilon_that_validation_allows_is_chosen():
    policies = [
        ("0", {}),
        ("0.1", {}),
        ("0.5", {"valid_wdr_rare": 10.1}),  # one estimate of one objective is worse
        ("1", {"valid_dr_survival": 50.0 - 1e-9}),  # a rounding error is not
        ("2.5", {"valid_dr_survival": 49.9}),
        ("5", {"valid_wdr_survival": math.nan}),  # nobody knows
        ("10", {"valid_dr_rare": 10.2, "survival": 99.0}),
    ]
    rows = [sepsis_row(CLINICIAN), *(sepsis_row(("1,0", "s-opt", text), **other) for text, other in policies)]
    chosen = [r for r in with_chosen(pa.Table.from_pylist(rows)).to_pylist() if r["parameter"] == "chosen"]
    assert [(r["preference"], r["epsilon"]) for r in chosen] == [("1,0", 1.0)]
    assert chosen[0]["valid_dr_survival"] == 50.0 - 1e-9


def test_each_seed_and_preference_chooses_by_its_own_validation_part():
    rows = []
    for seed, level in ((0, 50.0), (1, 60.0)):
        rows.append(sepsis_row(CLINICIAN, seed=seed, survival=level))
        # the test part and the truth, which may not be looked at, speak for the other one
        rows.append(
            sepsis_row(
                ("1,0", "s-opt", "0.1"), seed=seed, survival=0.0, valid_dr_survival=60.0, valid_wdr_survival=60.0
            )
        )
        rows.append(
            sepsis_row(("1,0", "s-opt", "5"), seed=seed, survival=99.0, valid_dr_survival=55.0, valid_wdr_survival=55.0)
        )
        rows.append(sepsis_row(("1,1", "s-opt", "5"), seed=seed, survival=level))
        rows.append(sepsis_row(("1,1", "s-opt", "10"), seed=seed, below=100, survival=level))  # of the other experiment
    table = with_chosen(pa.Table.from_pylist(rows)).to_pylist()
    chosen = {(r["repetition"], r["preference"]): r["epsilon"] for r in table if r["parameter"] == "chosen"}
    assert chosen == {(0, "1,0"): 5.0, (1, "1,0"): 0.1, (0, "1,1"): 5.0, (1, "1,1"): 5.0}
    assert len(table) == len(rows) + 4


# ---- numbers
def test_means_and_deviations_over_seeds():
    policy = ("1,0", "linearized", "")
    rows = [sepsis_row(CLINICIAN, seed=0), sepsis_row(CLINICIAN, seed=1, survival=51.0)]
    rows += [sepsis_row(policy, seed=0, survival=53.0), sepsis_row(policy, seed=1, survival=50.5)]
    records = by_key(summarise_sepsis(pa.Table.from_pylist(rows)))
    assert records[policy]["dr_survival"] == 51.75
    assert records[policy]["dr_survival_sd"] == pytest.approx(2.5 / math.sqrt(2))
    assert records[policy]["harmed"] == 0.5  # the second seed lost half a point; the means alone would not tell
    assert records[policy]["usable"] == 1.0
    alone = by_key(summarise_sepsis(pa.Table.from_pylist(rows[:1])))
    assert math.isnan(alone[CLINICIAN]["dr_survival_sd"])
    with pytest.raises(ParameterError, match="no column 'method'"):
        summarise_sepsis(pa.table({"rare_below": [10], "preference": ["1,0"]}))


def test_errors_are_told_by_effective_sample_size():
    rows = [sepsis_row(CLINICIAN, ess=5000.0, survival=0.0)]
    for ess, survival in ((3.0, 90.0), (99.0, 80.0), (5.0, 40.0), (100.0, 55.0)):
        rows.append(sepsis_row(("1,0", "s-opt", f"{ess}"), ess=ess, dr_survival=survival, true_rare=12.0))
    rows.append(sepsis_row(("0,0", "linearized", ""), ess=4.0, dr_survival=-500.0))
    few, some = errors_by_ess(pa.Table.from_pylist(rows))
    assert (few["low"], few["high"], few["policies"], few["dr_survival"], few["wdr_survival"]) == (0, 100, 3, 30, 0)
    assert (some["low"], some["policies"], some["dr_survival"], some["dr_rare"]) == (100, 1, 5, -2)


def test_sizes_and_gains_of_errors_are_told_too():
    """Two seeds whose clinicians are misjudged by +3 and −1; the policies' errors by hand."""
    rows, errors, gains = [], [], []
    for seed, (own, found) in enumerate(((3.0, (-8.0, 2.0, 6.0)), (-1.0, (1.0, -3.0)))):
        rows.append(sepsis_row(CLINICIAN, seed=seed, ess=5000.0, dr_survival=50.0 + own))
        for n, error in enumerate(found):
            exact = {"survival": 60.0 + n, "dr_survival": 60.0 + n + error}
            rows.append(sepsis_row(("1,0", "s-opt", f"{n}"), seed=seed, ess=7.0, **exact))
            errors.append(error)
            gains.append(error - own)
    [line] = errors_by_ess(pa.Table.from_pylist(rows))
    assert sorted(errors) == [-8.0, -3.0, 1.0, 2.0, 6.0]
    assert (line["dr_survival"], line["dr_survival_size"]) == (1.0, 3.0)
    assert (line["dr_survival_from"], line["dr_survival_to"]) == pytest.approx(
        (-6.0, 4.4)
    )  # 0.4 of the way between two
    assert sorted(gains) == [-11.0, -2.0, -1.0, 2.0, 3.0]
    assert (line["dr_survival_gain"], line["dr_survival_gain_size"]) == (-1.0, 2.0)
    assert line["wdr_survival_gain_size"] == line["dr_rare_size"] == 0.0


def test_false_comfort_counts_what_estimates_pass_and_truth_does_not():
    rows = [
        sepsis_row(CLINICIAN),
        sepsis_row(("1,0", "s-opt", "1"), survival=55.0, true_rare=10.5),  # passes, and is worse
        sepsis_row(("1,0", "s-opt", "5"), survival=55.0, true_rare=10.005),  # passes, and loses too little to count
        sepsis_row(("1,0", "s-opt", "10"), survival=55.0, dr_rare=11.0, true_rare=11.0),  # worse, and doesn't pass
        sepsis_row(("0,0", "s-opt", "10"), true_rare=11.0),  # left out
    ]
    assert false_comfort(pa.Table.from_pylist(rows)) == (2, 1)
