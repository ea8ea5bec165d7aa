"""Files of a log: which can be read, and one sentence about those that can't."""

from __future__ import annotations

import gzip
import hashlib
import os
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from bettersafe.logs._reader.files import data_digest, open_files, scan
from bettersafe.logs.dataset import Objective
from bettersafe.logs.source import count_files
from logs import assert_same, complaint, log_table, read, small_log, small_log_columns, write

if TYPE_CHECKING:
    from pathlib import Path

    from bettersafe.typing import Event


def test_one_file_twice_is_one_file(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", small_log())
    assert read([path, str(tmp_path / "*.csv")]).n_rows == 3


def test_file_names_may_look_like_patterns(tmp_path: Path) -> None:
    path = write(tmp_path / "log[1]'s.csv", small_log())
    write(tmp_path / "log1's.csv", small_log()[:1])
    assert read(path).n_rows == 3


def test_csv_dialects(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    text = "episode,step,state,action,gain,pain\r\n1,0,3,4,1,2\r\n\r\n1,1,3.0,4,1,2\r\n"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    dataset = read(path)
    assert dataset.state_labels.tolist() == [3]
    path.write_text(text.replace(",", ";"))
    assert_same(read(path), dataset)
    path.write_text(",episode,step,state,action,gain,pain,\n7,1,0,3,4,1,2,x\n8,1,1,3,4,1,2,\n")  # unnamed columns
    assert_same(read(path), dataset)


def test_digest(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_bytes(b"two")
    (tmp_path / "a.csv").write_bytes(b"one")
    assert data_digest(tmp_path / "a.csv") == hashlib.sha256(b"one").hexdigest()
    both = hashlib.sha256(b"onetwo").hexdigest()
    assert data_digest(str(tmp_path / "*.csv")) == both
    assert data_digest([tmp_path / "b.csv", tmp_path / "a.csv"]) == both


# What can be wrong: which files.
def test_no_such_file(tmp_path: Path) -> None:
    assert complaint(tmp_path / "x.csv") == f"there is no file {tmp_path}/x.csv. Check the name and the directory."
    assert complaint(f"{tmp_path}/*.csv").startswith(f"no file matches {tmp_path}/*.csv.")
    assert complaint(tmp_path) == f"{tmp_path} is a directory. Name its files, e.g. {tmp_path}/*.parquet."
    assert complaint([]).startswith("no file given.")


def test_unknown_extension(tmp_path: Path) -> None:
    for name in ("log.xlsx", "log", "log.parquet.gz"):
        (tmp_path / name).write_text("x")
        assert complaint(tmp_path / name).startswith(f"can't tell the format of {tmp_path / name} from its extension")


def test_files_of_two_formats(tmp_path: Path) -> None:
    one, other = write(tmp_path / "a.csv", small_log()), write(tmp_path / "b.jsonl", small_log())
    assert complaint([one, other]).startswith(
        f"all files must be of one format; {one} is CSV and {other} is JSON lines."
    )


@pytest.mark.parametrize("name", ["log.parquet", "log.arrow", "log.csv.gz", "log.jsonl.gz"])
def test_corrupt_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("this is not what it says")
    assert complaint(tmp_path / name).startswith(f"{name} can't be read as ")


def test_cut_off_gzip(tmp_path: Path) -> None:
    whole = gzip.compress(b"episode,step,state,action,gain,pain\n" + b"1,0,2,3,4,5\n" * 1000)
    (tmp_path / "log.csv.gz").write_bytes(whole[:-20])
    assert complaint(tmp_path / "log.csv.gz").startswith("log.csv.gz can't be read as CSV")


def test_broken_text(tmp_path: Path) -> None:
    header = "episode,step,state,action,gain,pain\n1,0,a,b,1,2\n"
    path = tmp_path / "log.csv"
    path.write_text(header + "1,1,a,b,1\n")
    assert complaint(path) == ("log.csv, line 3 has 5 cells where the header has 6. Complete the line or remove it.")
    path.write_text(header + '1,1,"a,b,1,2\n')
    assert complaint(path) == "log.csv, line 3 opens a quote and never closes it. Close it."
    path.write_bytes(header.encode() + b"1,1,\xff,b,1,2\n")
    assert complaint(path) == "log.csv, line 3 is not UTF-8 text. Save the file as UTF-8."
    path = write(tmp_path / "log.jsonl", small_log())
    path.write_text("\n" + path.read_text() + '{"episode": 3, "step"\n')
    assert complaint(path) == "log.jsonl, line 5 is not a JSON object. Correct the line or remove it."
    path.write_text("[1]\n")
    assert complaint(path).startswith("log.jsonl holds one JSON array, not JSON lines.")


def test_no_rows(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("")
    assert complaint(tmp_path / "log.csv") == "log.csv is empty. The first line must name the columns."
    (tmp_path / "log.csv").write_text("episode,step,state,action,gain,pain\n")
    message = "{} has no rows. Name a file with logged decisions."
    assert complaint(tmp_path / "log.csv") == message.format("log.csv")
    (tmp_path / "log.jsonl").write_text("")
    assert complaint(tmp_path / "log.jsonl") == message.format("log.jsonl")
    parquet.write_table(pa.table(small_log_columns()).slice(0, 0), tmp_path / "log.parquet")
    assert complaint(tmp_path / "log.parquet") == message.format("log.parquet")


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("episode,step,state,state,action,gain,pain\n1,0,1,1,1,1,1\n")
    assert complaint(tmp_path / "log.csv") == "log.csv has two columns 'state'. Rename one."


REWARD = [Objective(name="r")]


@pytest.mark.parametrize(("extension", "n_files", "limit"), [("parquet", 2000, 400), ("arrow", 200, 100)])
def test_thousands_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extension: str, n_files: int, limit: int
) -> None:
    """Neither open files nor the plan grow with their number; DuckDB reads some Parquet files ahead."""
    whole = log_table(n_files, 2)
    save = parquet.write_table if extension == "parquet" else feather.write_feather
    for i in range(n_files):
        save(whole.slice(2 * i, 2), str(tmp_path / f"{i:04d}.{extension}"))
    most = [0]

    def look(_: Event) -> None:
        most[0] = max(most[0], len(os.listdir("/proc/self/fd")))

    monkeypatch.setattr("bettersafe.logs._reader.progress.EVERY", 0.002)
    counts = count_files(tmp_path / f"*.{extension}", objectives=REWARD, progress=look)
    assert (counts.n_rows, counts.n_episodes) == (2 * n_files, n_files)
    assert 0 < most[0] < limit
    with duckdb.connect() as connection:
        plan = scan(connection, open_files(connection, tmp_path / f"*.{extension}"), ["state", "r"])
    assert plan.count("SELECT") == 1
