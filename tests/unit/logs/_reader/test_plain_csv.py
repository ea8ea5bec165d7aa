"""Plain CSV in one pass: the bits of SQL; what is not plain is left to it."""

from __future__ import annotations

import math
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bettersafe import _kernel
from bettersafe.logs._reader import plain_csv
from bettersafe.logs.source import count_files
from one_pass import REWARDS, assert_same_bits, by_sql, in_one_pass, outcome, plain, random_log

if TYPE_CHECKING:
    from bettersafe.typing import Event

pytestmark = pytest.mark.skipif(_kernel.compiled is None, reason="without the kernel there is one way only")


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


@pytest.mark.slow
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
