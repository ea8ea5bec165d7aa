"""Which log may test or evaluate which policy."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.errors import PolicyError, RunError
from bettersafe.runs.run import load_run
from bettersafe.tasks.evidence import evaluate_saved, evidence_for_run
from bettersafe.tasks.retest import certify_run


def test_a_log_that_made_the_policy_does_not_test_it(saved, files, tmp_path):
    import pyarrow.parquet as pq

    table = pq.read_table(files / "log.parquet")
    turned = table.take(np.arange(table.num_rows)[::-1])
    pq.write_table(turned, tmp_path / "copy.parquet")
    with pytest.raises(RunError, match="made from"):
        certify_run(load_run(saved), str(files / "log.parquet"))
    with pytest.raises(RunError, match="same decisions"):
        certify_run(load_run(saved), str(tmp_path / "copy.parquet"))
    one = table.filter(np.array(table["episode"]) == 0)
    pq.write_table(one, tmp_path / "one.parquet")
    with pytest.raises(RunError, match="one episode"):
        certify_run(load_run(saved), str(tmp_path / "one.parquet"))
    with evidence_for_run(load_run(saved), str(tmp_path / "one.parquet")) as evidence:
        rows = evaluate_saved(evidence)
    assert {row["estimator"] for row in rows} == {"logged", "is", "pdis", "wis", "cwpdis"}


def test_logged_probabilities_must_agree(saved, files, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(files / "later.parquet")
    place = table.column_names.index("baseline_prob")
    half = pa.array(np.array(table["baseline_prob"]) / 2.0)
    pq.write_table(table.set_column(place, "baseline_prob", half), tmp_path / "other.parquet")
    with pytest.raises(PolicyError, match="logged probability"):
        certify_run(load_run(saved), str(tmp_path / "other.parquet"))
