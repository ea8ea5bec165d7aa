"""Counting in one pass: what it can do it does as SQL does, to the last bit; what it can't it leaves to SQL."""

from __future__ import annotations

import math
import tempfile
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from bettersafe import _kernel
from bettersafe.errors import DataError, MemoryLimitError
from bettersafe.logs._reader import count_native, count_sql, plain_csv
from bettersafe.logs.counts_file import save_counts
from bettersafe.logs.dataset import Columns, Objective
from bettersafe.logs.source import count_files

if TYPE_CHECKING:
    from bettersafe.logs.counts import Counts
    from bettersafe.typing import Event

pytestmark = pytest.mark.skipif(_kernel.compiled is None, reason="without the kernel there is one way only")
REWARDS = [Objective(name="r0", discount=0.9)]


def in_one_pass(path: Any, objectives: list[Objective] = REWARDS, **options: Any) -> Counts | None:
    chosen: dict[str, Any] = {"columns": Columns(), "memory_limit": None, "digests": None, "progress": None}
    return count_native.count_sorted(path, objectives=objectives, **chosen | options)


def by_sql(monkeypatch: pytest.MonkeyPatch, path: Any, **options: Any) -> Counts:
    with monkeypatch.context() as patch:
        patch.setattr(count_native, "count_sorted", lambda *_, **__: None)
        return count_files(path, **options)


def assert_same_bits(one: object, other: object) -> None:
    """Fail unless all fields are equal, arrays to the last bit."""
    assert type(one) is type(other)
    for name, value in vars(one).items():
        found = getattr(other, name)
        if isinstance(value, np.ndarray):
            assert (value.dtype, value.shape) == (found.dtype, found.shape), name
            assert value.tobytes() == found.tobytes(), f"{name}: {value!r} and {found!r}"
        elif name in {"rests", "origin"} and value is not None:
            assert_same_bits(value, found)
        else:
            assert value == found, name


# Rewards of which sums are hard to get right, or for which the kernel has a way of its own.
AWKWARD = [
    lambda rng, n: rng.integers(-3, 4, n).astype(float),
    lambda rng, n: rng.choice([0.1, 0.2, 0.3, -0.7], n),
    lambda rng, n: np.round(rng.normal(0, 1, n), 3),
    lambda rng, n: rng.choice([1e-300, 1.0, -1e-300, 0.1], n),
    lambda rng, n: rng.choice([1e100, -1e100, 1e-5, 1.0], n),
    lambda rng, n: rng.choice([0.0, -0.0], n),
    lambda rng, n: rng.integers(-5000, 5000, n) / 1024,
    lambda rng, n: rng.normal(0, 1, n) * 10.0 ** rng.integers(-100, 90, n),
    lambda rng, n: rng.choice([5e-324, 2.0**-600, 3 * 2.0**-601, 2.0**-144 * 1.1], n),
    lambda rng, n: np.where(np.arange(n) < n // 2, 0.0, rng.normal(0, 1e-30, n)),
    lambda rng, n: rng.normal(0, 1, n).astype(np.float32),
    lambda rng, n: rng.integers(2**53, 2**62, n),
    lambda rng, n: rng.random(n) < 0.5,
]


def random_log(rng: np.random.Generator, n_episodes: int) -> tuple[pa.Table, list[Objective], Columns]:
    """A log in the order of episodes and steps, in which nothing is wrong, with some of the columns left out."""
    lengths = np.where(rng.random(n_episodes) < 0.3, 1, rng.integers(1, 8, n_episodes))
    n, last = int(lengths.sum()), np.cumsum(lengths) - 1
    is_last = np.isin(np.arange(n), last)
    labels = rng.integers(0, 6, n + 1)
    ended = is_last & (rng.random(n) < 0.6)
    following = np.append(labels[1:n], labels[n])
    following[is_last] = rng.integers(0, 8, is_last.sum())  # two states that are seen nowhere else
    gaps = (ended & (rng.random(n) < 0.7)) | (rng.random(n) < rng.choice([0.0, 0.3]))
    steps = np.concatenate([np.arange(length) for length in lengths])
    starts = [
        np.zeros(n_episodes),
        np.ones(n_episodes),
        rng.choice([0, 5, -3], n_episodes),
        rng.choice([1, 9], n_episodes),
    ]
    steps = steps + np.repeat(starts[rng.integers(4)], lengths).astype(np.int64)
    actions = rng.integers(0, 3, n)
    names = np.array(["", "a", "b c", "ä", "z" * 20, "日本", "7", "007"])
    kind = rng.integers(5)
    if kind < 2:
        scale = 1 if kind else 2**59
        state, after = pa.array(labels[:n] * scale - 3), pa.array(following * scale - 3, mask=gaps)
    elif kind == 2:
        state = pa.array(labels[:n].astype(np.int16))
        after = pa.array(np.where(gaps, np.nan, following))
    else:
        state, after = pa.array(names[labels[:n]]), pa.array(names[following], mask=gaps)
        if kind == 3:
            state = state.dictionary_encode()
    episode = np.sort(rng.choice(10 * n_episodes, n_episodes, replace=False)) - 5
    texts = np.array([f"e{number + 5:09d}" for number in episode])
    columns = {
        "episode": np.repeat(episode if rng.random() < 0.6 else texts, lengths),
        "step": steps,
        "state": state,
        "action": actions if rng.random() < 0.5 else np.array(["left", "right", "stay"])[actions],
        "next_state": after,
        "terminated": ended if rng.random() < 0.8 else ended.astype(np.int8),
        "truncated": is_last & ~ended & (rng.random(n) < 0.5),
        "baseline_prob": (1 + (labels[:n] + actions) % 3) / 3,
    }
    for name in ("next_state", "terminated", "truncated", "baseline_prob"):
        if rng.random() < 0.3:
            del columns[name]
    by_order = rng.random() < 0.2
    objectives = []
    for k in range(rng.integers(1, 4)):
        columns[f"r{k}"] = AWKWARD[rng.integers(len(AWKWARD))](rng, n)
        discount = float(rng.choice([0.0, 1e-9, 0.3, 0.99, 1 - 2**-53]))
        objectives.append(Objective(name=f"r{k}", discount=discount, lower_is_better=bool(rng.random() < 0.5)))
    return pa.table(columns), objectives, Columns(step="row-order") if by_order else Columns()


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


def plain(n_episodes: int = 20, length: int = 4, **cells: Any) -> dict[str, Any]:
    """Columns of a plain log; ``cells`` replaces some."""
    n = n_episodes * length
    rng = np.random.default_rng(0)
    state, is_last = rng.integers(0, 5, n), np.arange(n) % length == length - 1
    columns = {
        "episode": np.repeat(np.arange(n_episodes), length).tolist(),
        "step": np.tile(np.arange(length), n_episodes).tolist(),
        "state": state.tolist(),
        "action": rng.integers(0, 3, n).tolist(),
        "next_state": [None if end else int(x) for end, x in zip(is_last, np.roll(state, -1), strict=True)],
        "terminated": is_last.tolist(),
        "r0": np.round(rng.normal(0, 1, n), 2).tolist(),
    }
    return columns | cells


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


def outcome(count: Any) -> Any:
    try:
        return count()
    except DataError as error:
        return str(error)


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


# CSV. What a cell means is for cells.py to say; the quick way must either say the same or leave it to SQL.


def write_csv(path: Path, table: pa.Table, *, sep: str = ",", end: str = "\n", bom: bool = False) -> None:
    """A table as plain CSV: no quotes, a null as an empty cell, numbers as Python writes them."""

    def cell(value: Any) -> str:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return ""
        return str(value).lower() if isinstance(value, bool) else str(value)

    lines = [sep.join(table.column_names)]
    lines += [sep.join(cell(value) for value in row.values()) for row in table.to_pylist()]
    path.write_text(("\ufeff" if bom else "") + end.join(lines) + end, encoding="utf-8", newline="")


@pytest.mark.parametrize("seed", range(30))
def test_one_pass_over_csv_gives_the_bits_of_sql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    table, objectives, columns = random_log(rng, int(rng.choice([1, 12, 1200])))
    for i, name in enumerate(table.column_names):
        cells = table[name].to_pylist()
        if any(isinstance(value, str) for value in cells):  # "7" would be a number, and an empty cell none
            table = table.set_column(i, name, pa.array([None if value is None else f"s {value}" for value in cells]))
        elif name.startswith("r") and isinstance(cells[0], bool):
            table = table.set_column(i, name, pa.array([int(value) for value in cells]))
    cuts = np.setdiff1d(rng.integers(0, table.num_rows, rng.integers(0, 4)), [0])
    sep, suffix = [(",", "csv"), (";", "csv"), ("\t", "tsv")][rng.integers(3)]
    for i, (start, stop) in enumerate(pairwise([0, *cuts.tolist(), table.num_rows])):
        end, bom = str(rng.choice(["\n", "\r\n"])), bool(rng.random() < 0.3)
        write_csv(tmp_path / f"{i}.{suffix}", table.slice(start, stop - start), sep=sep, end=end, bom=bom)
    monkeypatch.setattr(plain_csv, "BLOCK", int(rng.choice([400, 1 << 20])) if table.num_rows < 100 else 5000)
    path, options = tmp_path / f"*.{suffix}", {"objectives": objectives, "columns": columns}
    assert in_one_pass(path, objectives, columns=columns) is not None
    slow = by_sql(monkeypatch, path, mergeable=True, **options)
    assert_same_bits(count_files(path, mergeable=True, **options), slow)


LINES = (
    "episode,step,state,action,next_state,terminated,r0\n0,0,5,1,6,false,0.5\n0,1,6,0,,true,1e-3\n1,0,5,0,,true,-2\n"
)
PLAIN_LINES = {
    "as it is": LINES,
    "no last line feed": LINES[:-1],
    "blank lines": LINES.replace("\n1,", "\n\n1,") + "\n",
    "numbers of a data frame": LINES.replace(",6,f", ",6.0,f").replace("\n0,", "\n0.0,").replace("\n1,", "\n1.0,"),
    "flags of a data frame": LINES.replace("false", "False").replace("true", "True"),
    "flags as numbers": LINES.replace("false", "0").replace("true", "1"),
    "texts": LINES.replace(",5,", ",on the left,").replace("6", "é"),
    "lines as in Windows": LINES.replace("\n", "\r\n"),
    "a column that is not used": "note," + LINES.replace("\n0", "\nx y,0").replace("\n1", "\n,1"),
}
NOT_PLAIN_LINES = {
    "a quoted cell": LINES.replace(",6,f", ',"6",f'),
    "a quote elsewhere": LINES.replace(",6,f", ',6",f'),
    "a label with zeros before it": LINES.replace(",5,", ",05,"),
    "a label with a space": LINES.replace("5,1", " 5,1"),
    "a label with a sign": LINES.replace("5,1", "+5,1"),
    "a fraction": LINES.replace(",5,", ",5.5,"),
    "a label that begins like a number": LINES.replace(",5,", ",5a,").replace("6", "b"),
    "numbers and texts": LINES.replace(",5,", ",five,"),
    "a text that is a number": LINES.replace(",5,", ",inf,").replace("6", "b"),
    "minus nothing": LINES.replace(",5,", ",-0,"),
    "a hexadecimal step": LINES.replace("0,1,6", "0,0x1,6"),
    "a step with a point": LINES.replace("0,1,6", "0,1.0,6"),
    "yes and no": LINES.replace("false", "no").replace("true", "yes"),
    "no flag": LINES.replace("false", "maybe"),
    "an empty flag": LINES.replace("false", ""),
    "a reward that is a word": LINES.replace("-2", "NA"),
    "NaN": LINES.replace("-2", "nan"),
    "no reward": LINES.replace("-2", ""),
    "a comma in a number": LINES.replace(",", ";").replace("0.5", "0,5"),
    "a line that is short": LINES.replace(",-2", ""),
    "a line that is long": LINES.replace("-2", "-2,3"),
    "a carriage return": LINES.replace("\n1,", "\r1,"),
    "a carriage return at the end": LINES + "\r",
    "lines that end in two ways": LINES.replace("\n1,", "\r\n1,"),
    "lines that end in two ways, the first as in Windows": LINES.replace("\n0,0", "\r\n0,0"),
    "a tab after a step": LINES.replace("0,1,6", "0,1\t,6"),
    "a null": LINES.replace("-2", "-2\0"),
    "a first line that is blank": "\n" + LINES,
    "nothing but names": LINES.splitlines()[0] + "\n",
    "nothing": "",
    "two rows swapped": "\n".join([LINES.splitlines()[i] for i in (0, 2, 1, 3)]) + "\n",
    "not UTF-8": LINES.encode().replace(b",5,", b",\xff,"),
    "not UTF-8 where it is not used": LINES.encode().replace(b"r0\n", b"r0,note\n").replace(b"e,0.5", b"e,0.5,\xff"),
}  # fmt: skip


@pytest.mark.parametrize("case", PLAIN_LINES)
def test_plain_csv_takes_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(PLAIN_LINES[case], encoding="utf-8", newline="")
    quick = in_one_pass(path)
    assert quick is not None
    assert_same_bits(quick, by_sql(monkeypatch, path, objectives=REWARDS))


@pytest.mark.parametrize("case", NOT_PLAIN_LINES)
def test_csv_that_is_not_plain_is_left_to_sql(tmp_path: Path, case: str) -> None:
    path, lines = tmp_path / "log.csv", NOT_PLAIN_LINES[case]
    path.write_bytes(lines if isinstance(lines, bytes) else lines.encode())
    assert in_one_pass(path) is None


LABELS = ["0", "1", "1", "2", "-3", "1.0", "01", " 1", "1 ", "+1", "1e0", "0x1", "a", "b", "é", "nan", "", "9" * 19, '"1"', "1_0", "0.5"]  # fmt: skip
STEPS = ["0", "1", "2", "00", " 0", "0\t", "1.0", "-0", "+1", "1e0", "0x1", "", "a"]
NUMBERS = [
    "0",
    "-0",
    "0.1",
    ".5",
    "5.",
    "1e-3",
    "1E5",
    "+1",
    " 1",
    "1_0",
    "0x1p3",
    "inf",
    "nan",
    "",
    "1d",
    "1e400",
    "1e-400",
    "0" * 30,
]
TRUTHS = ["true", "false", "True", "1", "0", "1.0", "no", " true", "TRUE", "", "t"]


@settings(max_examples=300)
@given(st.data())
def test_cells_of_any_kind_are_read_as_sql_reads_them_or_left_to_it(data: st.DataObject) -> None:
    """One row per episode, most of its cells plain, others not: what the quick way takes must be what SQL takes."""
    odd = data.draw(st.sampled_from(["episode", "step", "state", "action", "next_state", "terminated", "r0"]))
    pick = {"step": STEPS, "terminated": TRUTHS, "r0": NUMBERS}.get(odd, LABELS)
    usual = {"step": "0", "state": "1", "action": "2", "next_state": "", "terminated": "true", "r0": "0.5"}
    lines = [",".join(("episode", *usual))]
    for i in range(data.draw(st.integers(1, 3))):
        row = {"episode": str(i)} | usual
        if odd == "next_state":
            row["terminated"] = data.draw(st.sampled_from(["true", "false"]))
        lines.append(",".join((row | {odd: data.draw(st.sampled_from(pick))}).values()))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "log.csv"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
        quick = outcome(lambda: in_one_pass(path))
        if quick is not None:
            slow = outcome(lambda: by_sql(patch, path, objectives=REWARDS))
            assert not isinstance(slow, str), slow
            assert_same_bits(quick, slow)


def test_progress_over_csv_is_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bettersafe.logs._reader.progress.EVERY", 0.0)
    monkeypatch.setattr(plain_csv, "BLOCK", 300)
    for i in range(2):
        write_csv(tmp_path / f"{i}.csv", pa.table(plain(50, episode=np.repeat(np.arange(50) + 50 * i, 4))))
    told: list[Event] = []
    assert in_one_pass(tmp_path / "*.csv", progress=told.append) is not None
    size = sum(path.stat().st_size for path in tmp_path.glob("*.csv"))
    done = [one.done for one in told]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, size)
    assert {(one.total, one.unit) for one in told} == {(size, "bytes")}
