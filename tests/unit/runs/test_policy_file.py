"""Policies as files."""

from __future__ import annotations

import numpy as np


def test_a_policy_that_ends_a_last_bit_above_one_is_read_back(tmp_path):
    """Mixtures of policies do, and a run that was saved must be readable."""
    from bettersafe.runs.policy_file import read_saved_policy, write_policy

    policy = np.array([[1.0000000000000002, 0.0], [0.5, 0.5]])
    states, actions = np.array(["a", "b"]), np.array(["go", "stop"])
    write_policy(
        tmp_path / "policy.parquet", policy, states, actions, baseline=policy, counts=np.ones((2, 2), dtype=np.int64)
    )
    np.testing.assert_array_equal(read_saved_policy(tmp_path / "policy.parquet", actions).policy, policy)
