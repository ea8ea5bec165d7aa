"""Small logs in every format, for the tests of reading and counting."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from pyarrow import feather, parquet

from bettersafe.errors import DataError
from bettersafe.logs._reader.relation import open_source
from bettersafe.logs.dataset import Columns, Dataset, Objective
from bettersafe.logs.source import count_files, read_dataset

if TYPE_CHECKING:
    from pathlib import Path

    from bettersafe.logs.counts import Counts

FORMATS = ("log.csv", "log.csv.gz", "log.tsv", "log.parquet", "log.jsonl", "log.arrow")
GAIN = Objective(name="gain", discount=0.5)
PAIN = Objective(name="pain", discount=0.9, lower_is_better=True)

Rows = list[dict[str, Any]]


def small_log() -> Rows:
    """Two episodes: one terminates in its second row, one is cut off after one row, on its way to state b."""
    return [
        {"episode": 1, "step": 0, "state": "a", "action": "go", "next_state": "b", "terminated": False}
        | {"gain": 1.0, "pain": 0.5},
        {"episode": 1, "step": 1, "state": "b", "action": "stop", "next_state": None, "terminated": True}
        | {"gain": 4.0, "pain": 0.0},
        {"episode": 2, "step": 0, "state": "a", "action": "go", "next_state": "b", "terminated": False}
        | {"gain": -2.0, "pain": 2.0},
    ]


def write(path: Path, rows: Rows) -> Path:
    """Write rows in the format of the path's extension."""
    columns = list(rows[0])
    name = path.name
    if name.endswith((".csv", ".csv.gz", ".tsv")):
        opener = gzip.open if name.endswith(".gz") else open
        with opener(path, "wt", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, delimiter="\t" if name.endswith(".tsv") else ",")
            writer.writerow(columns)
            writer.writerows([[row[column] for column in columns] for row in rows])
    elif name.endswith((".jsonl", ".json", ".ndjson")):
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    else:
        table = pa.table({column: [row[column] for row in rows] for column in columns})
        if name.endswith(".parquet"):
            parquet.write_table(table, path)
        else:
            feather.write_feather(table, str(path))
    return path


def assert_same(one: object, other: object, *, skip: tuple[str, ...] = (), rtol: float = 0.0) -> None:
    """Fail unless two Datasets or two Counts are equal, floats up to ``rtol`` of the largest of an array."""
    for name, value in vars(one).items():
        if name in skip:
            continue
        found = getattr(other, name)
        if isinstance(value, np.ndarray):
            assert value.shape == found.shape, name
            assert value.dtype.kind == found.dtype.kind, name
            if value.dtype.kind == "f":
                scale = np.max(np.abs(value), initial=0.0)
                np.testing.assert_allclose(found, value, rtol=rtol, atol=rtol * scale, err_msg=name)
            else:
                np.testing.assert_array_equal(found, value, err_msg=name)
        else:
            assert value == found, name


def assert_same_counts(one: Counts, other: Counts, *, skip: tuple[str, ...] = ()) -> None:
    """Fail unless all integers are equal and all sums agree to 1e-12."""
    assert_same(one, other, skip=skip, rtol=1e-12)


BOTH = [GAIN, PAIN]

KINDS = ("log.csv", "log.parquet", "log.jsonl")  # one for each way of reading cells


def read(path: Any, columns: Columns | None = None) -> Dataset:
    return read_dataset(path, objectives=BOTH, columns=columns or Columns())


def complaint(path: Any, columns: Columns | None = None, objectives: list[Objective] | None = None) -> str:
    """The one sentence that opening this log gives; read_dataset and count_files both begin with that."""
    chosen = BOTH if objectives is None else objectives
    with (
        pytest.raises(DataError) as caught,
        open_source(path, objectives=chosen, columns=columns or Columns()),
    ):
        pass
    assert "\n" not in str(caught.value)
    return str(caught.value)


def changed(row: int, **cells: Any) -> Rows:
    """The small log with other cells in one row."""
    rows = small_log()
    rows[row] |= cells
    return rows


def small_log_columns() -> dict[str, list[Any]]:
    """The small log by column."""
    return {name: [row[name] for row in small_log()] for name in small_log()[0]}


def where(name: str, row: int) -> str:
    """How a message calls the row, from 0; CSV rows start in line 2."""
    if ".csv" in name or ".tsv" in name:
        return f"{name}, line {row + 2}"
    return f"{name}, {'line' if name.endswith('.jsonl') else 'row'} {row + 1}"


LABELS = st.one_of(st.just(range(4)), st.just(["a", "B", "é", "10"]))

NUMBERS = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: x if abs(x) > 1e-6 else 0.0)


@st.composite
def any_log(draw: st.DrawFn) -> Rows:
    """A log with any mixture of what may be left out, its rows shuffled."""
    labels = draw(LABELS)
    has = {name: draw(st.booleans()) for name in ("next_state", "terminated", "truncated", "baseline_prob")}
    rows: Rows = []
    for episode in range(draw(st.integers(1, 5))):
        states = draw(st.lists(st.sampled_from(labels), min_size=1, max_size=4))
        start = draw(st.sampled_from([0, 0, 3]))
        cut = draw(st.booleans())
        for t, state in enumerate(states):
            last = t == len(states) - 1
            row: dict[str, Any] = {"episode": episode, "step": start + t, "state": state}
            row |= {"action": draw(st.sampled_from(labels)), "gain": draw(NUMBERS), "pain": draw(NUMBERS)}
            following = draw(st.sampled_from([*labels, None])) if last else draw(st.sampled_from([states[t + 1], None]))
            optional = {"next_state": following, "terminated": last and not cut}
            optional |= {"truncated": last and cut, "baseline_prob": 0.25}
            rows.append(row | {name: value for name, value in optional.items() if has[name]})
    return draw(st.permutations(rows))


def fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def assert_bits(one: Any, other: Any, *, skip: tuple[str, ...] = ()) -> None:
    """Fail unless two Counts are equal to the last bit, -0.0 and 0.0 told apart."""
    assert (one is None) == (other is None)
    for name, value in fields(one).items():
        found = getattr(other, name)
        if name in skip:
            continue
        if isinstance(value, np.ndarray):
            assert value.shape == found.shape, name
            assert value.dtype == found.dtype or value.dtype.kind == "U", name
            assert value.tolist() == found.tolist(), name
            if value.dtype.kind == "f":
                assert np.array_equal(np.signbit(value), np.signbit(found)), name
        elif dataclasses.is_dataclass(value):
            assert_bits(value, found, skip=skip)
        else:
            assert value == found, name


def counted(path: Path, rows: Rows, **options: Any) -> Counts:
    """Counts of these rows, through a file."""
    return count_files(write(path, rows), objectives=BOTH, mergeable=True, **options)


def later(rows: Rows) -> Rows:
    """The same rows in other episodes."""
    return [row | {"episode": row["episode"] + 10} for row in rows]


def log_table(n_episodes: int, length: int = 10) -> pa.Table:
    """A walk through ``length`` states in every episode, with one reward, r."""
    last = np.tile(np.arange(length) == length - 1, n_episodes)
    n_rows = last.size
    return pa.table(
        {
            "episode": np.repeat(np.arange(n_episodes), length),
            "step": np.tile(np.arange(length), n_episodes),
            "state": np.tile(np.arange(length), n_episodes),
            "action": np.arange(n_rows) % 3,
            "next_state": pa.array(np.tile(np.arange(1, length + 1), n_episodes), mask=last),
            "terminated": last,
            "r": np.arange(n_rows) / 7,
        }
    )


def rows_of(n=12, **more):
    """Episodes of two rows each; ``more`` are functions of the row's number."""
    return [
        {"stay_id": f"S{i // 2}", "bloc": i % 2 + 1, "cluster": i % 3, "dose": "ab"[i % 2]}
        | {name: value(i) for name, value in more.items()}
        for i in range(n)
    ]


def long_log() -> Rows:
    """Forty episodes of different lengths, integers for labels, steps from 5, one real in each objective."""
    rng = random.Random(3)
    rows: Rows = []
    for episode in range(40):
        states = [rng.randrange(6) for _ in range(rng.randrange(1, 9))]
        for t, state in enumerate(states):
            last = t == len(states) - 1
            ended = last and episode % 3 != 0
            rows.append(
                {"episode": f"e{episode}", "step": t + 5, "state": state, "action": rng.randrange(3)}
                | {"next_state": None if ended else (rng.randrange(6) if last else states[t + 1])}
                | {"terminated": ended, "gain": rng.random(), "pain": rng.random()}
            )
    return rows


def saved_log(path: Path, n_episodes: int, length: int, n_states: int, d: int) -> Path:
    """Every state follows on every other: about as many different transitions as rows."""
    rng = np.random.default_rng(0)
    states = rng.integers(0, n_states, (n_episodes, length + 1))
    last = np.tile(np.arange(length) == length - 1, n_episodes)
    columns = {
        "episode": np.repeat(np.arange(n_episodes), length),
        "step": np.tile(np.arange(length), n_episodes),
        "state": states[:, :-1].ravel(),
        "action": rng.integers(0, 5, n_episodes * length),
        "next_state": pa.array(states[:, 1:].ravel(), mask=last),
        "terminated": last,
        **{f"r{k}": rng.integers(0, 9, n_episodes * length) for k in range(d)},
    }
    parquet.write_table(pa.table(columns), path)
    return path
