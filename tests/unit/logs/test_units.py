"""Sampling units: read, split, folded and tested by."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bettersafe.certificate.make import certify
from bettersafe.errors import DataError, ParameterError
from bettersafe.evaluation.bounds import by_unit
from bettersafe.evaluation.evaluate import evaluate_policy
from bettersafe.evaluation.held_out import safety_test
from bettersafe.evaluation.value_models import crossfit
from bettersafe.logs.dataset import Columns, Objective, split
from bettersafe.logs.episodes import first_steps, n_units, split_log
from bettersafe.logs.source import count_files, open_episodes, read_dataset
from evaluation_cases import held_out_case, safety_rule

R = (Objective(name="r"),)
COLUMNS = Columns(sampling_unit="patient_id")


def written(path, patients):
    """A log with one row per episode; the patient of each."""
    n = len(patients)
    table = {
        "episode": np.arange(n), "step": np.zeros(n, dtype=int), "state": ["x"] * n, "action": ["a", "b"] * (n // 2),
        "r": np.arange(n) * 1.0, "terminated": [True] * n, "patient_id": patients,
    }  # fmt: skip
    pq.write_table(pa.table(table), path)
    return str(path)


def with_units(data, size):
    from dataclasses import replace

    return replace(data, units=np.arange(data.n_episodes) // size)


def test_units_are_read_in_memory_and_from_disk(tmp_path):
    path = written(tmp_path / "log.parquet", ["c", "a", "c", "b", "a", "a"])
    log = read_dataset(path, objectives=R, columns=COLUMNS)
    assert log.units.tolist() == [2, 0, 2, 1, 0, 0]
    assert n_units(log) == 3
    with open_episodes(path, objectives=R, columns=COLUMNS) as episodes:
        assert episodes.units.tolist() == [2, 0, 2, 1, 0, 0]
        assert first_steps(episodes, 1).units.tolist() == [2, 0, 2, 1, 0, 0]
    assert count_files(path, objectives=R, columns=COLUMNS).n_rows == 6
    assert read_dataset(path, objectives=R).units is None


def test_a_note_names_a_column_of_likely_units(tmp_path):
    path = written(tmp_path / "log.parquet", [1, 1, 2, 2, 3, 3])
    for columns, noted in ((Columns(), True), (COLUMNS, False)):
        with open_episodes(path, objectives=R, columns=columns) as episodes:
            assert any("Set `sampling_unit` to patient_id" in note for note in episodes.notes) == noted
    with open_episodes(written(tmp_path / "one.parquet", range(6)), objectives=R) as episodes:
        assert not any("sampling_unit" in note for note in episodes.notes)


def test_an_episode_has_one_unit(tmp_path):
    path = written(tmp_path / "log.parquet", [1, None, 2, 2, 3, 3])
    with pytest.raises(DataError, match=r"episode 1 of .* has rows without one"):
        read_dataset(path, objectives=R, columns=COLUMNS)


def test_splits_and_folds_keep_units_together():
    _, baseline, policy, _, held_out, _ = held_out_case(episodes=200)
    data = with_units(held_out, 5)
    for parts in (split(data, [0.5, 0.5], rng=1), split_log(data, [0.5, 0.5], 1)):
        assert not set(parts[0].units) & set(parts[1].units)
        assert sum(part.n_episodes for part in parts) == 100
    _, fold = crossfit(data, baseline, 4, np.random.default_rng(0), lambda fit: fit)
    assert all(np.unique(fold[data.units == unit]).size == 1 for unit in range(20))
    with pytest.raises(ParameterError, match="at most the number of sampling units, 20"):
        crossfit(data, baseline, 21, np.random.default_rng(0), lambda fit: fit)
    assert evaluate_policy(data, policy, baseline, estimator="drl").units is not None


def test_tests_and_intervals_are_by_unit():
    _, baseline, policy, _, held_out, model = held_out_case(episodes=200)
    doubled = with_units(held_out, 1)
    plain, same = (safety_test(policy, baseline, each, safety_rule(), model=model) for each in (held_out, doubled))
    assert np.allclose(plain.bound, same.bound)  # every episode is a unit
    data = with_units(held_out, 5)
    found = evaluate_policy(data, policy, baseline, estimator="is")
    terms = by_unit(found.per_trajectory, data.units)
    assert np.allclose(found.standard_error, terms.std(axis=0, ddof=1) / np.sqrt(20))
    certificate = certify(policy, baseline, data, safety_rule(), baseline_known=True, model=model)
    assert "belong to 20 sampling units" in certificate.assumptions[0]
    bounded = safety_rule(estimator="is", bound="betting", return_range=([0.0, 0.0], [5.0, 5.0]))
    with pytest.raises(ParameterError, match="those of a sampling unit are not"):
        safety_test(policy, baseline, data, bounded, tuning=data)
