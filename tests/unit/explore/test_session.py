"""A log opened in the explorer."""

from __future__ import annotations

import shlex

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from bettersafe.cli import main
from bettersafe.errors import ParameterError
from bettersafe.explore import keeping
from bettersafe.explore import session as explore
from bettersafe.logs.counts_file import save_counts
from bettersafe.logs.dataset import Objective
from bettersafe.logs.discretize import discretize_log
from bettersafe.logs.source import count_files
from bettersafe.tasks.outcomes import PAIR_REWARDS
from bettersafe.tasks.task import Task
from state_worlds import store_features
from wards import assert_belief, documents, settings_of, ward_task


def test_counts_are_explored_as_the_log_is(session, log, tmp_path):
    objectives = session.task.objectives
    counts = count_files(str(log), objectives=objectives)
    save_counts(counts, tmp_path / "counts.parquet")
    counted = explore.open_session(Task(data=str(tmp_path / "counts.parquet"), objectives=objectives))
    assert PAIR_REWARDS in counted.counts.notes
    settings = settings_of(epsilon=3.0)
    found = explore.solve(counted, settings)
    np.testing.assert_array_equal(found.policy, explore.solve(session, settings).policy)
    assert_belief(counted, settings)
    kept = keeping.keep(counted, settings, "mine", tmp_path)
    words = shlex.split(kept["command"])
    words[words.index("-o") + 1] = str(tmp_path / "again")
    assert CliRunner().invoke(main.app, words[1:]).exit_code in (0, 3)
    assert documents(tmp_path / "again") == documents(tmp_path / "mine")
    assert CliRunner().invoke(main.app, shlex.split(kept["next"])[1:]).exit_code in (0, 3)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"method": "h-opt"}, "s-opt, soft-spibb"),
        ({"hold_out": 0.3}, "hold_out can't be used here"),
        ({"zeta": {"pain": -1.0}}, "zeta of pain must be an accepted loss"),
    ],
)
def test_what_can_not_be_explored(log, more, message):
    with pytest.raises(ParameterError, match=message):
        explore.open_session(ward_task(log, **more))


def test_a_log_whose_state_is_not_enough_is_noted_and_kept_untested(tmp_path):
    """A log of `discretize` is not held out: the page shows the whole log, and the run is not to be used."""
    parquet.write_table(pa.table(store_features(np.random.default_rng(0), 100)), tmp_path / "features.parquet")
    discretize_log(tmp_path / "features.parquet", tmp_path / "out", k=5, objectives=["energy", "spoilage"], quick=True)
    costs = tuple(Objective(name=name, lower_is_better=True) for name in ("energy", "spoilage"))
    session = explore.open_session(Task(data=str(tmp_path / "out" / "log.parquet"), objectives=costs))
    assert any("earlier steps of the episode help to predict" in note for note in session.counts.notes)
    kept = keeping.keep(session, explore.first_settings(session), "mine", tmp_path)
    assert "--hold-out 0" in kept["command"]
    assert kept["decision"]["word"] != "use-policy"
