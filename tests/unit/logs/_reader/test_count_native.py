"""Counting in one pass: what it can do it does as SQL does, to the last bit; what it can't it leaves to SQL."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from bettersafe import _kernel
from bettersafe.errors import DataError, MemoryLimitError
from bettersafe.logs._reader import count_native
from bettersafe.logs.counts_file import save_counts
from bettersafe.logs.dataset import Objective
from bettersafe.logs.source import count_files
from one_pass import REWARDS, assert_same_bits, by_sql, in_one_pass, outcome, plain, random_log

if TYPE_CHECKING:
    from pathlib import Path

    from bettersafe.typing import Event

pytestmark = pytest.mark.skipif(_kernel.compiled is None, reason="without the kernel there is one way only")


@pytest.mark.parametrize("seed", range(30))
def test_one_pass_gives_the_bits_of_sql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table, objectives, columns = random_log(rng, int(rng.choice([1, 12, 1200])))
    cuts = np.setdiff1d(rng.integers(0, table.num_rows, rng.integers(0, 4)), [0])
    edges = [0, *cuts.tolist(), table.num_rows]
    for i, (start, stop) in enumerate(pairwise(edges)):
        rows = int(rng.choice([1, 7, 5000])) if table.num_rows < 100 else 5000
        parquet.write_table(table.slice(start, stop - start), tmp_path / f"{i}.parquet", row_group_size=rows)
    monkeypatch.setattr(count_native, "BATCH_ROWS", int(rng.choice([1, 3, 1 << 16])) if table.num_rows < 100 else 2500)
    path, options = tmp_path / "*.parquet", {"objectives": objectives, "columns": columns}
    assert in_one_pass(path, objectives, columns=columns) is not None
    slow = by_sql(monkeypatch, path, mergeable=True, **options)
    assert_same_bits(count_files(path, mergeable=True, **options), slow)
    assert slow.rests is not None


def at(row: int, name: str, value: Any) -> dict[str, Any]:
    """A plain log with another value in one cell."""
    columns = plain()
    columns[name] = [*columns[name][:row], value, *columns[name][row + 1 :]]
    return columns


def test_sums_are_those_of_fractions(tmp_path: Path) -> None:
    """Against a twin that knows nothing of digits."""
    columns = plain(300)
    rng = np.random.default_rng(1)
    columns["r0"] = (rng.normal(0, 1, len(columns["r0"])) * 10.0 ** rng.integers(-90, 90, len(columns["r0"]))).tolist()
    parquet.write_table(pa.table(columns), tmp_path / "log.parquet")
    counts = count_files(tmp_path / "log.parquet", objectives=REWARDS, mergeable=True)
    sums: dict[tuple[int, int], list[Fraction]] = {}
    for x, a, r in zip(columns["state"], columns["action"], columns["r0"], strict=True):
        found = sums.setdefault((x, a), [Fraction(0), Fraction(0)])
        found[0] += Fraction(r)
        found[1] += Fraction(math.trunc(Fraction(r * r) * 2**288), 2**288)
    assert counts.rests is not None
    assert len(sums) == counts.n_pairs
    for p, (_, want) in enumerate(sorted(sums.items())):
        for i, name in enumerate(("reward_sum", "reward_square_sum")):
            layers = [getattr(counts, name)[0, p], *getattr(counts.rests, name)[:, 0, p]]
            assert sum(map(Fraction, layers)) == want[i]
            assert layers[0] == pytest.approx(float(want[i]), rel=1e-15)


def test_long_episodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the powers that are kept, and beyond those that count."""
    columns = plain(2, 70_000)
    parquet.write_table(pa.table(columns), tmp_path / "log.parquet")
    for discount in (0.5, 0.9999, 0.999999):
        objectives = [Objective(name="r0", discount=discount)]
        quick = in_one_pass(tmp_path / "log.parquet", objectives)
        assert quick is not None
        assert_same_bits(quick, by_sql(monkeypatch, tmp_path / "log.parquet", objectives=objectives))


GOOD = {
    "as it is": plain(),
    "costs as integers": plain(r0=np.arange(80)),
    "gaps in next_state": at(1, "next_state", None),
    "starts late": at(0, "step", 0) | {"step": np.tile(np.arange(7, 11), 20)},
    "nothing but a row that is left out": plain(1, 1, next_state=pa.nulls(1, pa.int64()), terminated=[False]),
    "flags as numbers": plain(terminated=np.tile([0, 0, 0, 1], 20)),
}

LEFT_TO_SQL = {
    "episodes in another order": {name: pa.array(cells)[::-1] for name, cells in plain().items()},
    "an episode in two places": plain(
        20, 1, episode=[*range(19), 0], step=[0] * 19 + [1], terminated=[False] + [True] * 19
    )
    | {"next_state": [plain(20, 1)["state"][19]] + [None] * 19},
    "steps in another order": plain(step=np.tile([1, 0, 3, 2], 20), next_state=None)
    | {"next_state": pa.nulls(80, pa.int64())},
    "a gap in steps": at(7, "step", 9),
    "a step twice": at(1, "step", 0),
    "a step far out": plain(20, 1, step=[2**62] * 20),
    "a null step": at(1, "step", None),
    "another next_state": at(0, "next_state", 77),
    "a row after the end": at(1, "terminated", True),
    "a null flag": at(1, "terminated", None),
    "a flag that is none": plain(terminated=np.tile([0, 0, 0, 2], 20)),
    "a row after a cut": plain(truncated=[True] + [False] * 79),
    "terminated and cut": plain(truncated=np.tile([False, False, False, True], 20)),
    "no reward": at(3, "r0", None),
    "NaN": at(3, "r0", math.nan),
    "infinite": at(3, "r0", math.inf),
    "too large": at(3, "r0", -1.1e100),
    "a text as reward": plain(r0=["1"] * 80),
    "a decimal as reward": plain(r0=[Decimal("0.1")] * 80),
    "no state": at(2, "state", None),
    "no action": at(2, "action", None),
    "no episode": at(2, "episode", None),
    "a fraction as state": plain(20, 1, state=np.arange(20) / 2),
    "a large state": plain(20, 1, state=np.array([2**63 + 1] * 20, dtype=np.uint64)),
    "truth values as states": plain(20, 1, state=[True, False] * 10),
    "texts and numbers": plain(20, 1, next_state=["a"] * 20, terminated=[False] * 20),
    "texts that end in a null": plain(20, 1, action=["a", "a\0"] * 10),
    "probability 0": plain(baseline_prob=[0.0] + [0.5] * 79),
    "probability 2": plain(baseline_prob=[2.0] + [0.5] * 79),
    "text episodes out of order": plain(20, 1, episode=[f"e{i}" for i in range(20)]),
    "next_state in time": plain(20, 1, next_state=pa.array([0] * 20, pa.timestamp("s"))),
    "two numberings of steps": plain(20, 1, step=[0, 1] * 10),
    "no rows": {name: pa.array(cells)[:0] for name, cells in plain().items()},
    "a name twice but for its case": plain(State=list(range(80))),
    "no such reward": {name: cells for name, cells in plain().items() if name != "r0"},
}


@pytest.mark.parametrize("case", GOOD)
def test_what_is_usual_takes_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    parquet.write_table(pa.table(GOOD[case]), tmp_path / "log.parquet")
    quick = in_one_pass(tmp_path / "log.parquet")
    assert quick is not None
    assert_same_bits(quick, by_sql(monkeypatch, tmp_path / "log.parquet", objectives=REWARDS))


@pytest.mark.parametrize("case", LEFT_TO_SQL)
def test_what_is_unusual_is_left_to_sql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    path = tmp_path / "log.parquet"
    parquet.write_table(pa.table(LEFT_TO_SQL[case]), path)
    assert in_one_pass(path, digests={str(path): ""}) is None
    found = outcome(lambda: count_files(path, objectives=REWARDS, mergeable=True))
    slow = outcome(lambda: by_sql(monkeypatch, path, objectives=REWARDS, mergeable=True))
    if isinstance(slow, str):
        assert found == slow
    else:
        assert_same_bits(found, slow)


def test_labels_that_end_in_a_null_are_refused(tmp_path: Path) -> None:
    parquet.write_table(pa.table(LEFT_TO_SQL["texts that end in a null"]), tmp_path / "log.parquet")
    with pytest.raises(DataError, match=r"action 'a\\x00' ends in a null character"):
        count_files(tmp_path / "log.parquet", objectives=REWARDS)


@pytest.mark.parametrize(
    "second",
    [
        plain(5, episode=np.repeat(np.arange(30, 35), 4), state=[f"{i}" for i in range(20)]),
        plain(5, episode=np.repeat(np.arange(30, 35), 4), truncated=[False] * 20),
        {name: cells for name, cells in plain(5, episode=np.repeat(np.arange(30, 35), 4)).items() if name != "action"},
        plain(5, episode=np.repeat(np.arange(30.0, 35.0), 4)),
        plain(5, episode=np.repeat(np.arange(17, 22), 4)),
    ],
    ids=["text", "one more column", "one less", "floats", "the same episodes"],
)
def test_files_that_differ_are_left_to_sql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: dict[str, Any]
) -> None:
    parquet.write_table(pa.table(plain()), tmp_path / "a.parquet")
    parquet.write_table(pa.table(second), tmp_path / "b.parquet")
    path = tmp_path / "*.parquet"
    assert in_one_pass(path) is None
    found = outcome(lambda: count_files(path, objectives=REWARDS))
    slow = outcome(lambda: by_sql(monkeypatch, path, objectives=REWARDS))
    assert found == slow if isinstance(slow, str) else not isinstance(found, str)


def test_files_that_are_no_logs_are_left_to_sql(tmp_path: Path) -> None:
    parquet.write_table(pa.table(plain()), tmp_path / "log.parquet")
    counts = count_files(tmp_path / "log.parquet", objectives=REWARDS, mergeable=True)
    save_counts(counts, tmp_path / "counts.parquet")
    (tmp_path / "broken.parquet").write_bytes((tmp_path / "log.parquet").read_bytes()[:-100])
    (tmp_path / "log.jsonl").write_text(
        '{"episode": 1, "step": 0, "state": 1, "action": 1, "r0": 1}\n', encoding="utf-8"
    )
    for name in ("counts.parquet", "broken.parquet", "log.jsonl"):
        assert in_one_pass(tmp_path / name) is None
    with pytest.raises(DataError, match="is a counts file"):
        count_files(tmp_path / "counts.parquet", objectives=REWARDS)
    with pytest.raises(DataError, match="can't be read as Parquet"):
        count_files(tmp_path / "broken.parquet", objectives=REWARDS)
    assert in_one_pass(tmp_path / "log.parquet", []) is None
    assert in_one_pass(tmp_path / "log.parquet", REWARDS * 2) is None


def test_two_probabilities_of_a_pair_are_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.parquet"
    parquet.write_table(pa.table(plain(baseline_prob=np.linspace(0.1, 0.9, 80))), path)
    with pytest.raises(DataError, match="must be the same in all rows") as quick:
        in_one_pass(path)
    assert str(quick.value) == outcome(lambda: by_sql(monkeypatch, path, objectives=REWARDS))


def test_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.parquet"
    parquet.write_table(pa.table(plain()), path)
    assert in_one_pass(path, memory_limit="1KB") is None  # DuckDB knows what to do with more than fits
    assert in_one_pass(path, memory_limit="a lot") is None
    assert in_one_pass(path, memory_limit="1 GiB") is not None
    monkeypatch.setenv("BETTERSAFE_MEMORY_LIMIT", "1MB")
    with pytest.raises(MemoryLimitError, match=r"different transitions of log\.parquet needs about"):
        in_one_pass(path)


def test_without_the_kernel_sql_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet.write_table(pa.table(plain()), tmp_path / "log.parquet")
    monkeypatch.setattr(_kernel, "compiled", None)
    assert in_one_pass(tmp_path / "log.parquet") is None
    assert count_files(tmp_path / "log.parquet", objectives=REWARDS).n_rows == 80


def test_progress_is_never_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that is found to be unusual in its last rows."""
    monkeypatch.setattr("bettersafe.logs._reader.progress.EVERY", 0.0)
    monkeypatch.setattr(count_native, "BATCH_ROWS", 100)
    columns = plain(500)
    columns["episode"] = [*columns["episode"][:-4], -1, -1, -1, -1]
    parquet.write_table(pa.table(columns), tmp_path / "log.parquet")
    told: list[Event] = []
    monkeypatch.setattr("bettersafe.logs._reader.progress.EVERY", 0.001)
    counts = count_files(tmp_path / "log.parquet", objectives=REWARDS, progress=told.append)
    assert counts.n_episodes == 500
    done = [one.done for one in told]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, 2000)
    assert {one.total for one in told} == {2000}
