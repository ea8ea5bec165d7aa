"""Tables of the sepsis study."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from bettersafe.errors import ParameterError
from bettersafe.studies.catalogue import make_study
from bettersafe.studies.sepsis.figures import draw_sepsis
from bettersafe.studies.sepsis.plan import ABOUT
from bettersafe.studies.sepsis.summary import knows_truth, summarise_sepsis
from bettersafe.studies.sepsis.tables import sepsis_tables
from pictures import assert_nothing_overlaps, texts
from study_rows import cells_of, sepsis_rows


# ---- tables and figures
def test_tables_mark_what_is_worse_and_have_the_paper_beside_ours():
    page = sepsis_tables(sepsis_rows(), "sepsis/icu", note="This is a note.")
    assert page.startswith(f"# sepsis/icu\n\n{ABOUT['sepsis/icu']}.\n\nThis is a note.\n\n2 seeds; ±")
    line = cells_of(page, "Table 1", ["[1, 0]", "Linearized"])
    assert line[2:] == [
        "90.00 ± 0.00", "97.68 ± 0.22", "90.00 ± 0.00", "97.58 ± 0.20", "90.00 ± 0.00", "40.00 ± 0.00 ▼", "3 ± 0", "2 of 2",
    ]  # fmt: skip
    line = cells_of(page, "Table 1", ["[1, 0]", "Linearized"], table=1)
    assert line[2:4] == ["30.00 ± 0.00 ▼", "27.64 ± 1.11 ▼"]
    line = cells_of(page, "Table 1", ["[0, 0]", "Linearized"])
    assert line[3] == "−89.39 ± 0.43 ▼"
    line = cells_of(page, "Table 1", ["[1, 1]", "S-OPT, ε chosen"])
    assert line[2:4] == ["52.50 ± 0.71", "86.77 ± 0.49"]
    assert line[-1] == "0 of 2"
    assert "| [0, 1] | – | – | – | – | – | – | – | – | 2 |" in page  # which ε was chosen
    assert cells_of(page, "S-OPT over ε", ["[1, 0]", "S-OPT ε = 0.1"], table=1)[5] == "13.80 ± 0.33 ▼"
    assert cells_of(page, "H-OPT over δ, tested with WDR", ["[1, 0]", "H-OPT (WDR) δ = 0.9"])[3] == "91.39 ± 0.00"
    line = cells_of(page, "Vasopressors", ["[1, 0]", "Linearized"])
    assert line[2:] == ["8 ± 0", "4 ± 0 (50.0%)", "2 ± 0", "562 (77.8%)", "295"]
    line = cells_of(page, "How usual", ["[0, 1]", "S-OPT, ε chosen"])
    assert line[2:] == ["12.5 ± 0.0", "56.1", "25.0% ± 0.0%", "23.4%"]
    line = cells_of(page, "Pairs seen fewer than 100", ["[1, 0]", "Linearized, rare pairs removed from the data"])
    assert line[2:] == [
        "11.00 ± 0.00 ▼", "11.26", "11.00 ± 0.00 ▼", "11.00 ± 0.00 ▼", "10.00 ± 0.00", "10.00 ± 0.00", "100 ± 0", "2 of 2",
    ]  # fmt: skip
    assert cells_of(page, "Errors of the estimates", ["0 to 100", "DR"])[2:] == [
        "6", "+50.00", "50.00", "+50.00 to +50.00", "+50.00", "50.00",
    ]  # fmt: skip
    assert cells_of(page, "Errors of the estimates", ["100 to 1000", "model"], table=1)[3] == "+0.00"


def test_without_a_truth_none_is_shown():
    unknown = {"true_survival": math.nan, "true_rare": math.nan}
    table = pa.Table.from_pylist([record | unknown for record in sepsis_rows(seeds=1).to_pylist()])
    assert not knows_truth(summarise_sepsis(table))
    page = sepsis_tables(table, "sepsis/mimic")
    assert "exact" not in page.lower()
    assert "nan" not in page
    assert "1 seed" in page
    drawn = draw_sepsis(table, "sepsis/mimic")
    assert drawn.keys() == {"doses", "epsilon"}
    assert "exact" not in " ".join(texts(drawn["epsilon"]))


@pytest.mark.parametrize(
    ("prepared", "paper", "doses"),
    [
        ({}, "Paper: on MIMIC-III, another cohort and another outcome", "1 to 4: quarters of the non-zero doses;"),
        (
            {"outcome": "died_in_hosp", "iv_bins": "clinical"},
            "Paper: also on MIMIC-III, with its own splits and states.",
            "1 to 4: fluid cut at 500, 1000, 2000 mL, vasopressor at the quarters of the non-zero doses;",
        ),
        (
            {"outcome": "mortality_90d", "iv_bins": "quartile"},
            "but with deaths in hospital, here within 90 days: compare conclusions",
            "1 to 4: quarters of the non-zero doses;",
        ),
    ],
)
def test_words_are_those_of_the_cohort(prepared, paper, doses):
    table = pa.Table.from_pylist([prepared | record for record in sepsis_rows(seeds=1).to_pylist()])
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
    rows = [record for record in sepsis_rows().to_pylist() if record["method"] != "b-opt"]
    page = sepsis_tables(pa.Table.from_pylist(rows), "sepsis/icu")
    assert "B-OPT" not in page
    assert "G-OPT ε = 1" in page
