"""Counting by SQL: in blocks as in one piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from bettersafe import _kernel
from bettersafe.logs._reader import count_sql
from one_pass import REWARDS, assert_same_bits, by_sql, in_one_pass

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(_kernel.compiled is None, reason="without the kernel there is one way only")


@pytest.mark.parametrize("kind", [int, str])
def test_groups_in_blocks_give_the_bits_of_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type
) -> None:
    rng = np.random.default_rng(3)
    n, length = 4000, 5
    states = rng.integers(0, 300, (n, length + 1))
    states[:, 1] = 17  # a state with more groups than a batch
    last = np.tile(np.arange(length) == length - 1, n)
    following = [None if end else kind(x) for x, end in zip(states[:, 1:].ravel().tolist(), last, strict=True)]
    table = {
        "episode": np.repeat(np.arange(n), length),
        "step": np.tile(np.arange(length), n),
        "state": [kind(x) for x in states[:, :-1].ravel().tolist()],
        "action": rng.integers(0, 9, n * length),
        "next_state": following,
        "terminated": last & (rng.random(n * length) < 0.9),
        "r0": rng.normal(size=n * length),
    }
    path = tmp_path / "log.parquet"
    parquet.write_table(pa.table(table), path)
    one = in_one_pass(path)
    assert one is not None
    monkeypatch.setattr(count_sql, "BLOCK", 2048)  # the least that DuckDB gives at a time
    blocks = []
    found = count_sql.by_pair_in_blocks
    monkeypatch.setattr(
        count_sql, "by_pair_in_blocks", lambda given, *rest: found((blocks.append(b) or b for b in given), *rest)
    )
    assert_same_bits(by_sql(monkeypatch, path, objectives=REWARDS), one)
    assert len(blocks) > 3
