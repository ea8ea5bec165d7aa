"""Policies as files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bettersafe.errors import PolicyError
from bettersafe.runs.policy_file import (
    policy_actions,
    read_policy,
    read_saved_policy,
    read_whole_policy,
    write_policy,
)


def test_a_policy_that_ends_a_last_bit_above_one_is_read_back(tmp_path):
    """Mixtures of policies do, and a run that was saved must be readable."""
    policy = np.array([[1.0000000000000002, 0.0], [0.5, 0.5]])
    states, actions = np.array(["a", "b"]), np.array(["go", "stop"])
    write_policy(
        tmp_path / "policy.parquet", policy, states, actions, baseline=policy, counts=np.ones((2, 2), dtype=np.int64)
    )
    np.testing.assert_array_equal(read_saved_policy(tmp_path / "policy.parquet", actions).policy, policy)


STATES, ACTIONS = np.array(["a", "b"]), np.array(["go", "stop"])


def write_csv(path, rows):
    path.write_text("state,action,probability\n" + "".join(f"{x},{a},{p}\n" for x, a, p in rows), encoding="utf-8")
    return path


def test_a_file_may_have_more_states_than_the_log(tmp_path):
    rows = [
        ("a", "go", 0.25),
        ("a", "stop", 0.75),
        ("c", "jump", 1.0),
        ("b", "stop", 1.0),
        ("0", "go", 0.5),
        ("0", "stop", 0.5),
    ]
    path = write_csv(tmp_path / "baseline.csv", rows)
    assert read_policy(path, STATES, ACTIONS).tolist() == [[0.25, 0.75], [0.0, 1.0]]
    assert policy_actions(path, STATES, ACTIONS).tolist() == ["go", "stop"]
    whole = read_whole_policy(path, STATES, ACTIONS)
    assert whole.state_labels.tolist() == ["0", "a", "b", "c"]
    assert whole.action_labels.tolist() == ["go", "jump", "stop"]
    assert whole.policy.tolist() == [[0.5, 0.0, 0.5], [0.25, 0.0, 0.75], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    assert whole.notes == ()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        # lines are those of the file, also behind rows of states that the log does not have
        ([("c", "go", 1), ("a", "go", 1), ("b", "go", 0.6)], r"state b sum to 0.6, beginning in p.csv, line 4"),
        ([("c", "go", 1), ("a", "go", 1), ("b", "go", -0.1)], r"got -0.1 in column 'probability' of p.csv, line 4"),
        ([("c", "go", 1), ("a", "hop", 1), ("b", "go", 1)], r"action hop in column 'action' of p.csv, line 3"),
        (
            [("c", "go", 1), ("a", "go", 1), ("a", "go", 1), ("b", "go", 1)],
            r"state a, action go is repeated in p.csv, line 4",
        ),
        (
            [("c", "go", 1), ("B", "go", 1), ("a", "go", 1)],
            r"no row for state b.*It has 2 states \(such as B, c\) that the data",
        ),
    ],
)
def test_bad_rows_are_named_by_their_line(tmp_path, rows, message):
    with pytest.raises(PolicyError, match=message):
        read_policy(write_csv(tmp_path / "p.csv", rows), STATES, ACTIONS)


def test_rows_of_other_states_are_checked_if_they_are_to_be_kept(tmp_path):
    path = write_csv(tmp_path / "p.csv", [("a", "go", 1), ("b", "go", 1), ("c", "go", 0.5)])
    assert read_policy(path, STATES, ACTIONS).tolist() == [[1.0, 0.0], [1.0, 0.0]]
    with pytest.raises(PolicyError, match=r"state c sum to 0.5, beginning in p.csv, line 4"):
        read_whole_policy(path, STATES, ACTIONS)


@pytest.mark.parametrize("kind", ["six decimals", "float32"])
def test_rounded_files_are_normalised_and_say_so(tmp_path, kind):
    states, actions = np.arange(40), np.arange(25)
    exact = np.random.default_rng(1).dirichlet(np.ones(25), size=40)
    if kind == "six decimals":
        rows = [(x, a, f"{exact[x, a]:.6f}") for x in states for a in actions]
        path, most = write_csv(tmp_path / "b.csv", rows), 1e-5
    else:
        path, most = tmp_path / "b.parquet", 1e-6
        columns = {
            "state": np.repeat(states, 25),
            "action": np.tile(actions, 40),
            "probability": exact.ravel().astype(np.float32),
        }
        pq.write_table(pa.table(columns), path)
    whole = read_whole_policy(path, states, actions)
    assert whole.policy.sum(axis=1) == pytest.approx(1.0, abs=1e-9)
    assert whole.policy == pytest.approx(exact, abs=most)
    [note] = whole.notes
    assert note.startswith(f"the probabilities in {path.name} are rounded: their sum differs from 1 by up to ")
    assert 1e-9 < float(note.split("up to ")[1].split(",")[0]) < most
    write_policy(tmp_path / "exact.csv", exact, states, actions)
    assert read_whole_policy(tmp_path / "exact.csv", states, actions).notes == ()
