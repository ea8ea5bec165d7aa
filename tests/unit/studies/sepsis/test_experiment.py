"""The sepsis study: the ε that is chosen, its tables and figures from made-up rows, and small runs of both routes."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import synthetic_mimic
from bettersafe.errors import ParameterError
from bettersafe.studies import drawing
from bettersafe.studies.catalogue import CATALOGUE, make_study
from bettersafe.studies.figures import write_figures
from bettersafe.studies.sepsis import experiment
from bettersafe.studies.sepsis.experiment import icu_experiment
from bettersafe.studies.sepsis.figures import draw_sepsis
from bettersafe.studies.sepsis.mimic import Preparation, prepare_splits
from bettersafe.studies.sepsis.plan import ABOUT, DELTAS, EPSILONS, PREFERENCES, mimic_study, sepsis_study
from bettersafe.studies.sepsis.published import VALUES
from bettersafe.studies.sepsis.summary import (
    CLINICIAN,
    by_key,
    errors_by_ess,
    false_comfort,
    key,
    knows_truth,
    summarise_sepsis,
    with_chosen,
)
from bettersafe.studies.sepsis.tables import sepsis_tables
from bettersafe.studies.sweep import read_rows, run_sweep
from pictures import assert_nothing_overlaps, texts


def row(policy, *, seed=0, below=10, survival=50.0, rare=10.0, ess=100.0, **other):
    """A row all of whose estimates say the same, unless told otherwise."""
    preference, method, parameter = policy
    made = {"repetition": seed, "rare_below": below, "preference": preference, "method": method, "parameter": parameter}
    for what in ("dr", "wdr", "valid_dr", "valid_wdr", "model", "true"):
        made |= {f"{what}_survival": survival, f"{what}_rare": rare}
    made |= {
        "ess": ess, "test_episodes": 200, "usable": True, "states": 9, "states_without_vaso": 8, "given_vaso": 4,
        "given_large_vaso": 2, "advised_times_seen": 12.5, "advised_share_seen": 0.25,
    }  # fmt: skip
    made |= {f"dose iv{a}/vaso{b}": 0.04 for a in range(5) for b in range(5)}
    return made | other


def study_rows(seeds=2, **clinician):
    """A whole study in small: every policy that the tables name, the same numbers in all but a few."""
    rows = []
    for seed in range(seeds):
        rows.append(row(CLINICIAN, seed=seed, **clinician))
        for preference in PREFERENCES:
            better = {"survival": 52.0 + seed, "rare": 9.0, "seed": seed}
            rows.append(
                row((preference, "linearized", ""), seed=seed, survival=90.0, rare=30.0, ess=3.0, true_survival=40.0)
            )
            rows.append(row((preference, "adv-linearized", ""), **better))
            rows += [row((preference, "s-opt", f"{epsilon:g}"), **better) for epsilon in EPSILONS]
            rows += [row((preference, "h-opt", f"{e} {d:g}"), **better) for e in ("dr", "wdr") for d in DELTAS]
            rows += [
                row((preference, *ours), **better) for ours in (("g-opt", "0.1"), ("g-opt", "1"), ("b-opt", "0.1"))
            ]
        rows.append(row(CLINICIAN, seed=seed, below=100))
        rows.append(row(("1,0", "linearized, rare removed", ""), seed=seed, below=100, survival=11.0))
        rows.append(row(("1,1", "adv-linearized", ""), seed=seed, below=100))
        rows.append(row(("1,1", "s-opt", "1"), seed=seed, below=100))
    return pa.Table.from_pylist(rows)


def cells(page, section, policy, table=0):
    """The cells of a policy's line, in the n-th table under a heading."""
    part = page.split(f"## {section}")[1].split("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|")]
    found = [line for line in lines if line[:2] == policy]
    return found[table]


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
    rows = [row(CLINICIAN), *(row(("1,0", "s-opt", text), **other) for text, other in policies)]
    chosen = [r for r in with_chosen(pa.Table.from_pylist(rows)).to_pylist() if r["parameter"] == "chosen"]
    assert [(r["preference"], r["epsilon"]) for r in chosen] == [("1,0", 1.0)]
    assert chosen[0]["valid_dr_survival"] == 50.0 - 1e-9


def test_each_seed_and_preference_chooses_by_its_own_validation_part():
    rows = []
    for seed, level in ((0, 50.0), (1, 60.0)):
        rows.append(row(CLINICIAN, seed=seed, survival=level))
        # the test part and the truth, which may not be looked at, speak for the other one
        rows.append(
            row(("1,0", "s-opt", "0.1"), seed=seed, survival=0.0, valid_dr_survival=60.0, valid_wdr_survival=60.0)
        )
        rows.append(
            row(("1,0", "s-opt", "5"), seed=seed, survival=99.0, valid_dr_survival=55.0, valid_wdr_survival=55.0)
        )
        rows.append(row(("1,1", "s-opt", "5"), seed=seed, survival=level))
        rows.append(row(("1,1", "s-opt", "10"), seed=seed, below=100, survival=level))  # of the other experiment
    table = with_chosen(pa.Table.from_pylist(rows)).to_pylist()
    chosen = {(r["repetition"], r["preference"]): r["epsilon"] for r in table if r["parameter"] == "chosen"}
    assert chosen == {(0, "1,0"): 5.0, (1, "1,0"): 0.1, (0, "1,1"): 5.0, (1, "1,1"): 5.0}
    assert len(table) == len(rows) + 4


# ---- numbers


def test_means_and_deviations_over_seeds():
    policy = ("1,0", "linearized", "")
    rows = [row(CLINICIAN, seed=0), row(CLINICIAN, seed=1, survival=51.0)]
    rows += [row(policy, seed=0, survival=53.0), row(policy, seed=1, survival=50.5)]
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
    rows = [row(CLINICIAN, ess=5000.0, survival=0.0)]
    for ess, survival in ((3.0, 90.0), (99.0, 80.0), (5.0, 40.0), (100.0, 55.0)):
        rows.append(row(("1,0", "s-opt", f"{ess}"), ess=ess, dr_survival=survival, true_rare=12.0))
    rows.append(row(("0,0", "linearized", ""), ess=4.0, dr_survival=-500.0))
    few, some = errors_by_ess(pa.Table.from_pylist(rows))
    assert (few["low"], few["high"], few["policies"], few["dr_survival"], few["wdr_survival"]) == (0, 100, 3, 30, 0)
    assert (some["low"], some["policies"], some["dr_survival"], some["dr_rare"]) == (100, 1, 5, -2)


def test_sizes_and_gains_of_errors_are_told_too():
    """Two seeds whose clinicians are misjudged by +3 and −1; the policies' errors by hand."""
    rows, errors, gains = [], [], []
    for seed, (own, found) in enumerate(((3.0, (-8.0, 2.0, 6.0)), (-1.0, (1.0, -3.0)))):
        rows.append(row(CLINICIAN, seed=seed, ess=5000.0, dr_survival=50.0 + own))
        for n, error in enumerate(found):
            exact = {"survival": 60.0 + n, "dr_survival": 60.0 + n + error}
            rows.append(row(("1,0", "s-opt", f"{n}"), seed=seed, ess=7.0, **exact))
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
        row(CLINICIAN),
        row(("1,0", "s-opt", "1"), survival=55.0, true_rare=10.5),  # passes, and is worse
        row(("1,0", "s-opt", "5"), survival=55.0, true_rare=10.005),  # passes, and loses too little to count
        row(("1,0", "s-opt", "10"), survival=55.0, dr_rare=11.0, true_rare=11.0),  # worse, and doesn't pass
        row(("0,0", "s-opt", "10"), true_rare=11.0),  # left out
    ]
    assert false_comfort(pa.Table.from_pylist(rows)) == (2, 1)


def test_the_papers_values_are_whole():
    assert len(VALUES) == 1 + len(PREFERENCES) * (2 + 1 + len(EPSILONS) + 2 * len(DELTAS))
    assert VALUES[CLINICIAN][::2] == (64.78, 64.78, 13.58, 13.58)
    assert VALUES["0,1", "s-opt", "0.1"][:4] == (71.35, 0.96, 69.29, 0.92)
    assert VALUES["1,0", "s-opt", "chosen"] == VALUES["1,0", "s-opt", "0.01"]  # as the paper says, ε = 0.01


# ---- tables and figures


def test_tables_mark_what_is_worse_and_have_the_paper_beside_ours():
    page = sepsis_tables(study_rows(), "sepsis/icu", note="This is a note.")
    assert page.startswith(f"# sepsis/icu\n\n{ABOUT['sepsis/icu']}.\n\nThis is a note.\n\n2 seeds; ±")
    line = cells(page, "Table 1", ["[1, 0]", "Linearized"])
    assert line[2:] == [
        "90.00 ± 0.00", "97.68 ± 0.22", "90.00 ± 0.00", "97.58 ± 0.20", "90.00 ± 0.00", "40.00 ± 0.00 ▼", "3 ± 0", "2 of 2",
    ]  # fmt: skip
    line = cells(page, "Table 1", ["[1, 0]", "Linearized"], table=1)
    assert line[2:4] == ["30.00 ± 0.00 ▼", "27.64 ± 1.11 ▼"]
    line = cells(page, "Table 1", ["[0, 0]", "Linearized"])
    assert line[3] == "−89.39 ± 0.43 ▼"
    line = cells(page, "Table 1", ["[1, 1]", "S-OPT, ε chosen"])
    assert line[2:4] == ["52.50 ± 0.71", "86.77 ± 0.49"]
    assert line[-1] == "0 of 2"
    assert "| [0, 1] | – | – | – | – | – | – | – | – | 2 |" in page  # which ε was chosen
    assert cells(page, "S-OPT over ε", ["[1, 0]", "S-OPT ε = 0.1"], table=1)[5] == "13.80 ± 0.33 ▼"
    assert cells(page, "H-OPT over δ, tested with WDR", ["[1, 0]", "H-OPT (WDR) δ = 0.9"])[3] == "91.39 ± 0.00"
    line = cells(page, "Vasopressors", ["[1, 0]", "Linearized"])
    assert line[2:] == ["8 ± 0", "4 ± 0 (50.0%)", "2 ± 0", "562 (77.8%)", "295"]
    line = cells(page, "How usual", ["[0, 1]", "S-OPT, ε chosen"])
    assert line[2:] == ["12.5 ± 0.0", "56.1", "25.0% ± 0.0%", "23.4%"]
    line = cells(page, "Pairs seen fewer than 100", ["[1, 0]", "Linearized, rare pairs removed from the data"])
    assert line[2:] == [
        "11.00 ± 0.00 ▼", "11.26", "11.00 ± 0.00 ▼", "11.00 ± 0.00 ▼", "10.00 ± 0.00", "10.00 ± 0.00", "100 ± 0", "2 of 2",
    ]  # fmt: skip
    assert cells(page, "How far off", ["0 to 100", "DR"])[2:] == [
        "6", "+50.00", "50.00", "+50.00 to +50.00", "+50.00", "50.00",
    ]  # fmt: skip
    assert cells(page, "How far off", ["100 to 1000", "model"], table=1)[3] == "+0.00"


def test_without_a_truth_none_is_shown():
    unknown = {"true_survival": math.nan, "true_rare": math.nan}
    table = pa.Table.from_pylist([record | unknown for record in study_rows(seeds=1).to_pylist()])
    assert not knows_truth(summarise_sepsis(table))
    page = sepsis_tables(table, "sepsis/mimic")
    assert "exact" not in page.lower()
    assert "nan" not in page
    assert "1 seed" in page
    assert draw_sepsis(table, "sepsis/mimic").keys() == {"doses"}


@pytest.mark.parametrize(
    ("prepared", "paper", "doses"),
    [
        ({}, "Paper: on MIMIC-III, another cohort and another outcome", "1 to 4: quarters of the non-zero doses;"),
        (
            {"outcome": "died_in_hosp", "iv_bins": "clinical"},
            "Paper: on MIMIC-III too, with splits and states of its own.",
            "1 to 4: fluid cut at 500, 1000, 2000 mL, vasopressor at the quarters of the non-zero doses;",
        ),
        (
            {"outcome": "mortality_90d", "iv_bins": "quartile"},
            "but with deaths in hospital, here within 90 days: compare the picture",
            "1 to 4: quarters of the non-zero doses;",
        ),
    ],
)
def test_words_are_those_of_the_cohort(prepared, paper, doses):
    table = pa.Table.from_pylist([prepared | record for record in study_rows(seeds=1).to_pylist()])
    assert paper in sepsis_tables(table, "sepsis/mimic")
    drawn = draw_sepsis(table, "sepsis/mimic")
    assert doses in " ".join(texts(drawn["doses"]))
    assert_nothing_overlaps(drawn["doses"])
    assert "every policy of the paper's methods" in " ".join(texts(drawn["truth"]))


def test_b_opt_may_be_left_out():
    assert all("without" not in job for job in make_study("sepsis/icu", seeds=1).jobs)
    job = make_study("sepsis/icu", seeds=1, patients=300, without="b-opt").jobs[0]
    assert job["without"] == "b-opt"
    with pytest.raises(ParameterError, match="without must be one of b-opt"):
        make_study("sepsis/icu", without="bopt")
    rows = [record for record in study_rows().to_pylist() if record["method"] != "b-opt"]
    page = sepsis_tables(pa.Table.from_pylist(rows), "sepsis/icu")
    assert "B-OPT" not in page
    assert "G-OPT ε = 1" in page


def test_figures_say_what_they_are_and_nothing_overlaps():
    drawn = draw_sepsis(study_rows(), "sepsis/icu", note="a word in the subtitle")
    assert drawn.keys() == {"doses", "truth", "epsilon"}
    for figure in drawn.values():
        said = " ".join(texts(figure))
        assert "a word in the subtitle" in said
        assert "2 seeds" in said
        assert_nothing_overlaps(figure)
    clinician = drawn["doses"].axes[0]
    assert np.allclose(clinician.images[0].get_array(), 4.0)  # per cent
    assert [text.get_text() for text in clinician.texts] == ["4"] * 25
    estimates = drawn["truth"].axes[0]
    drawn_points = np.concatenate([points.get_offsets() for points in estimates.collections[1:]])
    assert [40.0, 90.0] in drawn_points.tolist()  # Linearized: true, estimated


# ---- the catalogue


def test_options_belong_to_their_studies():
    study = make_study("sepsis/icu", seeds=2, patients=500, unseen="end", cohort="fixed", cmdps=None)
    assert [job["repetition"] for job in study.jobs] == [0, 1]
    assert {(job["patients"], job["unseen"], job["cohort"], job["preset"]) for job in study.jobs} == {
        (500, "end", "fixed", "ours")
    }
    assert {job["preset"] for job in make_study("sepsis/icu-published").jobs} == {"published"}
    for study_id, options, match in (
        ("sepsis/icu", {"cmdps": 3}, "--cmdps does not belong to the study sepsis/icu, which takes --seeds"),
        ("gridworld/fixed", {"patients": 9}, "--patients does not belong .* takes --cmdps. Leave it out"),
        ("sepsis/mimic", {}, "needs --data, a folder that 'bettersafe sepsis prepare' wrote"),
        ("sepsis/mimic", {"data": ["."], "cohort": "fixed"}, "--cohort does not belong"),
        ("sepsis/icu", {"unseen": "deth"}, "unseen must be one of death, end, baseline.*'death'"),
        ("sepsis/icu", {"patients": 5}, "at least 100 patients"),
        ("sepsis/icu", {"seeds": 0}, "at least 1 seed"),
        ("sepsis/mimic", {"data": ["."], "seed": 2}, "draws nothing; .* `sepsis prepare --seed 2`"),
    ):
        with pytest.raises(ParameterError, match=match):
            make_study(study_id, **options)


# ---- small runs


@pytest.fixture(autouse=True)
def _small_pictures(monkeypatch):
    monkeypatch.setattr(drawing, "DPI", 40)


def test_route_a_in_small(tmp_path):
    run_sweep(sepsis_study("sepsis/icu", seeds=1, patients=600), tmp_path, workers=1)
    written = {path.name for path in write_figures(tmp_path)}
    pictures = {f"{name}.{kind}" for name in ("doses", "truth", "epsilon") for kind in ("png", "svg")}
    assert written == pictures | {"table.md", "summary.csv"}
    page = (tmp_path / "figures" / "table.md").read_text(encoding="utf-8")
    assert "# sepsis/icu\n" in page
    assert "unfinished" not in page
    assert "nan" not in page
    records = by_key(summarise_sepsis(read_rows(tmp_path)))
    clinician, still = records[CLINICIAN], records["1,0", "s-opt", "0"]
    for column in ("true_survival", "true_rare", "dr_survival", "wdr_rare"):
        assert still[column] == pytest.approx(clinician[column], abs=1e-8)
    assert clinician["true_survival"] == pytest.approx(51.98, abs=3.0)  # the simulator's clinicians


@pytest.mark.parametrize("study_id", ["sepsis/icu", "sepsis/icu-published"])
def test_route_a_splits_a_cohort_of_the_papers_size_as_published(monkeypatch, study_id):
    found = {}
    monkeypatch.setattr(
        experiment, "compare", lambda train, valid, test, **_: found.update(parts=(train, valid, test)) or []
    )
    icu_experiment(sepsis_study(study_id, seeds=1).jobs[0])
    assert [part.n_episodes for part in found["parts"]] == [14_667, 2_095, 4_192]
    patients = np.concatenate([part.episode_labels for part in found["parts"]])
    assert np.unique(patients).size == 20_954


def test_an_unfinished_study_of_published_estimates_says_so(tmp_path, monkeypatch):
    said = []
    entry = CATALOGUE["sepsis/icu-published"]
    seeing = replace(entry, draw=lambda rows, note: said.append(note) or {})
    monkeypatch.setitem(CATALOGUE, "sepsis/icu-published", seeing)
    run_sweep(sepsis_study("sepsis/icu-published", seeds=1, patients=300, without="b-opt"), tmp_path, workers=1)
    study = sepsis_study("sepsis/icu-published", seeds=2, patients=300, without="b-opt")
    description = json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))
    description["jobs"].append({"job": study.keys[1], "settings": study.jobs[1]})
    (tmp_path / "study.json").write_text(json.dumps(description), encoding="utf-8")
    write_figures(tmp_path, tmp_path / "elsewhere")
    page = (tmp_path / "elsewhere" / "table.md").read_text(encoding="utf-8")
    assert page.startswith("# sepsis/icu-published")
    assert "This is an unfinished sweep: 1 of 2 seeds." in page
    assert said == ["unfinished sweep: 1 of 2 seeds"]
    rows = read_rows(tmp_path, partial=True).to_pylist()
    assert {record["method"] for record in rows} >= {"h-opt", "g-opt"}
    assert "b-opt" not in {record["method"] for record in rows}
    assert all(-100.0 <= record["dr_survival"] <= 100.0 for record in rows)  # clipped
    assert rows[0]["test_episodes"] < 0.2 * 300  # those with an unseen pair are dropped
    assert not any(record["usable"] for record in rows)  # biased on purpose


def test_route_b_in_small(tmp_path):
    stays, blocks = synthetic_mimic.write(tmp_path, *synthetic_mimic.cohort(300, seed=3))
    prepare_splits(stays, blocks, tmp_path / "prepared", Preparation(seed=5, k=12, quick=True), splits=2)
    study = mimic_study([tmp_path / "prepared"])
    assert [(job["repetition"], job["seed"]) for job in study.jobs] == [(0, 5), (1, 6)]
    run_sweep(study, tmp_path / "study", workers=1)
    written = {path.name for path in write_figures(tmp_path / "study")}
    assert written == {"doses.png", "doses.svg", "table.md", "summary.csv"}
    page = (tmp_path / "study" / "figures" / "table.md").read_text(encoding="utf-8")
    assert "worse in truth" not in page
    assert "2 seeds; ±" in page
    assert "Paper: on MIMIC-III too" in page
    rows = read_rows(tmp_path / "study")
    values = [r["dr_survival"] for r in rows.to_pylist() if key(r) == CLINICIAN and r["rare_below"] == 10]
    assert len(set(values)) == 2
    assert cells(page, "Table 1", ["–", "Clinician (π_b)"])[2] == (
        f"{sum(values) / 2:.2f} ± {abs(values[0] - values[1]) / math.sqrt(2):.2f}"
    )
    records = by_key(summarise_sepsis(rows))
    doses = sum(value for name, value in records[CLINICIAN].items() if name.startswith("dose") and name[-1].isdigit())
    assert doses == pytest.approx(1.0)
    assert mimic_study([tmp_path / "prepared"], seeds=1).jobs == study.jobs[:1]
    with pytest.raises(ParameterError, match="seeds must be from 1 to 2, the number of prepared splits; got 3"):
        mimic_study([tmp_path / "prepared"], seeds=3)
    prepare_splits(stays, blocks, tmp_path / "prepared", Preparation(seed=5, k=11, quick=True), splits=1, force=True)
    anew = mimic_study([tmp_path / "prepared" / "split-00"])
    assert anew.keys[0] not in study.keys  # what was prepared anew is not taken for what was done


# λ, method, parameter: true survival, true rare-treatment return, DR of survival, of an independent prototype on 6 cohorts
PROTOTYPE = {
    CLINICIAN: (51.98, 9.91, 51.2),
    ("1,0", "linearized", ""): (52.2, 79.2, 96.1),
    ("1,0", "adv-linearized", ""): (56.8, 19.4, 80.9),
    ("1,0", "s-opt", "0.01"): (52.07, 9.85, 51.9),
    ("1,0", "s-opt", "0.1"): (52.90, 9.59, 55.6),
    ("1,0", "s-opt", "1"): (57.5, 11.7, 72.5),
    ("1,1", "linearized", ""): (58.4, 19.9, 91.2),
    ("1,1", "s-opt", "2.5"): (59.0, 5.4, 77.0),
    ("0,1", "linearized", ""): (47.7, 0.29, 43.7),
    ("0,1", "s-opt", "1"): (54.9, 1.1, 58.0),
}


@pytest.mark.long
def test_the_full_study_agrees_with_the_prototype():
    study = sepsis_study("sepsis/icu")
    table = pa.Table.from_pylist([job | made for job in study.jobs for made in icu_experiment(job)])
    records = by_key(summarise_sepsis(table))
    for policy, values in PROTOTYPE.items():
        for column, value in zip(("true_survival", "true_rare", "dr_survival"), values, strict=True):
            assert abs(records[policy][column] - value) <= 2 * records[policy][f"{column}_sd"], (policy, column)
    for (preference, method, parameter), record in records.items():
        if method == "linearized" and preference != "0,0":
            assert record["harmed"] == 1.0
        if method == "s-opt" and float(parameter) <= 0.1:
            assert record["harmed"] == 0.0
