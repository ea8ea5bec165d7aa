from __future__ import annotations

import gzip
import hashlib
import random
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from bettersafe.errors import DataError, ParameterError
from bettersafe.logs._reader import cells
from bettersafe.logs._reader.files import data_digest
from bettersafe.logs._reader.relation import open_source
from bettersafe.logs.dataset import Columns, Dataset, Objective
from bettersafe.logs.source import count_files, read_dataset
from logs import FORMATS, GAIN, PAIN, Rows, assert_same, small_log, write

if TYPE_CHECKING:
    from pathlib import Path

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
    rows = small_log()
    rows[row] |= cells
    return rows


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_dataset(tmp_path: Path, name: str) -> None:
    dataset = read(write(tmp_path / name, small_log()))
    assert dataset.states.tolist() == [0, 1, 0]
    assert dataset.actions.tolist() == [0, 1, 0]
    assert dataset.next_states.tolist() == [1, -1, 1]
    assert dataset.terminated.tolist() == [False, True, False]
    assert dataset.rewards.tolist() == [[1.0, -0.5], [4.0, 0.0], [-2.0, -2.0]]
    assert not np.signbit(dataset.rewards[1, 1])  # a cost of 0 is 0, not -0
    assert dataset.episode_ptr.tolist() == [0, 2, 3]
    assert dataset.episode_labels.tolist() == [1, 2]
    assert dataset.state_labels.tolist() == ["a", "b"]
    assert dataset.action_labels.tolist() == ["go", "stop"]
    assert dataset.notes == ()


@pytest.mark.parametrize("name", FORMATS)
def test_next_state_and_end_are_taken_from_the_rows(tmp_path: Path, name: str) -> None:
    rows = [{k: v for k, v in row.items() if k not in {"next_state", "terminated"}} for row in small_log()]
    dataset = read(write(tmp_path / name, rows))
    assert dataset.next_states.tolist() == [1, -1, -1]
    assert dataset.terminated.tolist() == [False, True, True]
    assert dataset.notes == ("no 'terminated' column: the last row of every episode is taken as its end",)


def test_truncated_column_alone_says_which_ends_are_no_ends(tmp_path: Path) -> None:
    rows = [{k: v for k, v in row.items() if k not in {"next_state", "terminated"}} for row in small_log()]
    for row, cut in zip(rows, ("no", "no", "Yes"), strict=True):
        row["truncated"] = cut
    dataset = read(write(tmp_path / "log.csv", rows))
    assert dataset.terminated.tolist() == [False, True, False]
    assert dataset.next_states.tolist() == [1, -1, -1]
    assert dataset.notes == (
        "no 'terminated' column: the last row of every episode is taken as its end"
        " unless column 'truncated' says otherwise",
        "1 episode is cut off with no next_state: its last row is left out of the model",
    )


def test_missing_next_state_in_the_middle_is_taken_from_the_next_row(tmp_path: Path) -> None:
    dataset = read(write(tmp_path / "log.parquet", changed(0, next_state=None)))
    assert dataset.next_states.tolist() == [1, -1, 1]


def test_next_state_of_a_terminated_row_is_no_state(tmp_path: Path) -> None:
    dataset = read(write(tmp_path / "log.csv", changed(1, next_state="the end")))
    assert dataset.state_labels.tolist() == ["a", "b"]
    assert dataset.next_states.tolist() == [1, -1, 1]


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


@pytest.mark.parametrize("name", FORMATS)
def test_row_order_does_not_matter(tmp_path: Path, name: str) -> None:
    rows = long_log()
    straight = read(write(tmp_path / name, rows))
    random.Random(1).shuffle(rows)
    assert_same(read(write(tmp_path / f"shuffled_{name}", rows)), straight)
    assert straight.state_labels.dtype == np.int64


def test_row_order_as_step(tmp_path: Path) -> None:
    rows = long_log()
    with_steps = read(write(tmp_path / "log.csv", rows))
    for row in rows:
        del row["step"]
    rows.sort(key=lambda row: int(row["episode"][1:]) % 2)  # the order within each episode stays
    for name in FORMATS:
        assert_same(read(write(tmp_path / f"x{name}", rows), Columns(step="row-order")), with_steps)


@pytest.mark.parametrize("extension", ["csv", "parquet", "jsonl", "arrow"])
def test_several_files_are_one_log(tmp_path: Path, extension: str) -> None:
    rows = long_log()
    whole = read(write(tmp_path / f"whole.{extension}", rows))
    cut = len(rows) // 2  # in the middle of an episode
    write(tmp_path / f"part1.{extension}", rows[:cut])
    other = [dict(reversed(row.items())) for row in rows[cut:]]  # columns in another order
    write(tmp_path / f"part2.{extension}", other)
    assert_same(read(str(tmp_path / f"part*.{extension}")), whole)
    assert_same(read([tmp_path / f"part2.{extension}", tmp_path / f"part1.{extension}"]), whole)


def test_one_file_twice_is_one_file(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", small_log())
    assert read([path, str(tmp_path / "*.csv")]).n_rows == 3


@pytest.mark.parametrize("name", FORMATS)
def test_odd_labels_and_columns(tmp_path: Path, name: str) -> None:
    odd = ["ß é 漢", "it's", 'say "hi"', "007", " a,b;c\t", "true", "NULL"]
    rows: Rows = [
        {'an "odd" column': label, "step no": i, "zu'stand": label, "État": odd[-1 - i], "a;b, c": 1.5}
        for i, label in enumerate(odd)
    ]
    for row in rows:
        row['an "odd" column'] = "one"
    columns = Columns(episode='an "odd" column', step="step no", state="zu'stand", action="État")
    dataset = read_dataset(write(tmp_path / name, rows), objectives=[Objective(name="a;b, c")], columns=columns)
    assert dataset.state_labels.tolist() == sorted(odd)
    assert [str(dataset.state_labels[x]) for x in dataset.states] == odd
    assert dataset.rewards[:, 0].tolist() == [1.5] * 7


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


def test_label_types(tmp_path: Path) -> None:
    def states(name: str, *labels: Any) -> list[Any]:
        rows = [{"episode": i, "step": 0, "state": x, "action": 1, "gain": 0, "pain": 0} for i, x in enumerate(labels)]
        return read(write(tmp_path / name, rows)).state_labels.tolist()

    assert states("a.csv", 10, 9) == [9, 10]
    assert states("b.csv", "10", "09") == ["09", "10"]
    assert states("c.csv", "1e3", "12345678901234567890") == ["12345678901234567890", "1e3"]
    assert states("d.csv", True, False) == ["False", "True"]
    assert states("a.parquet", "10", "9") == ["10", "9"]
    assert states("b.parquet", 10.0, 9.0) == [9, 10]
    assert states("c.parquet", True, False) == ["false", "true"]
    assert states("a.jsonl", 10, 9.0) == [9, 10]
    assert states("b.jsonl", "10", "9") == ["10", "9"]
    assert states("c.jsonl", True, False) == ["false", "true"]


def test_float_next_state_with_nan_is_an_integer_with_gaps(tmp_path: Path) -> None:
    rows = small_log()
    for row in rows:
        row["state"] = {"a": 1, "b": 2}[row["state"]]
        row["next_state"] = {None: float("nan"), "b": 2.0}[row["next_state"]]
    for name in ("log.parquet", "log.arrow", "log.jsonl"):
        dataset = read(write(tmp_path / name, rows))
        assert dataset.state_labels.tolist() == [1, 2]
        assert dataset.next_states.tolist() == [1, -1, 1]


def test_mixed_labels_in_csv_are_text_with_a_note(tmp_path: Path) -> None:
    rows = small_log()
    rows[0]["state"] = rows[2]["state"] = "12"
    dataset = read(write(tmp_path / "log.csv", rows))
    assert dataset.state_labels.tolist() == ["12", "b"]
    (note,) = dataset.notes
    assert note.startswith(
        "state labels mix numbers and text, '12' in log.csv, line 2 and 'b' in log.csv, line 3: all are read"
    )


def test_baseline_column_is_found_and_noted(tmp_path: Path) -> None:
    rows = [row | {"baseline_prob": 0.25} for row in small_log()]
    dataset = read(write(tmp_path / "log.parquet", rows))
    assert dataset.baseline_prob is not None
    assert dataset.baseline_prob.tolist() == [0.25] * 3
    assert dataset.notes == ("column 'baseline_prob' gives the baseline's probability of each logged action",)


def test_source_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    rows = [{k: v for k, v in row.items() if k != "next_state"} for row in long_log()]
    with open_source(write(tmp_path / "log.csv", rows), objectives=BOTH, memory_limit="100MB") as source:
        assert source.ask("SELECT count(*) FROM log") == [(len(rows),)]
        assert any(scratch.iterdir())
    assert not any(scratch.iterdir())


def test_memory_limit_must_be_a_size(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="such as '2GB'; got 'much'"):
        count_files(write(tmp_path / "log.csv", small_log()), objectives=BOTH, memory_limit="much")


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


def small_log_columns() -> dict[str, list[Any]]:
    return {name: [row[name] for row in small_log()] for name in small_log()[0]}


# What can be wrong: which columns.


@pytest.mark.parametrize("name", KINDS)
def test_missing_column(tmp_path: Path, name: str) -> None:
    rows = [{("states" if k == "state" else k): v for k, v in row.items()} for row in small_log()]
    message = complaint(write(tmp_path / name, rows))
    assert message.startswith(f"{name} has no column 'state'; it has ")
    assert message.endswith(" Did you mean 'states'? Name it with --state or in the task file.")


def test_missing_columns_name_their_option(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", small_log())
    there = "it has episode, step, state, action, next_state, terminated, gain, pain."
    assert complaint(path, objectives=[Objective(name="cost")]) == (
        f"log.csv has no column 'cost'; {there} Name it with --objective or in the task file."
    )
    assert complaint(path, Columns(next_state="x2")) == (
        f"log.csv has no column 'x2'; {there} Name it with --next-state or in the task file."
    )
    assert complaint(path, Columns(step="time")) == (
        f"log.csv has no column 'time'; {there}"
        " Name it with --step or in the task file; or, if the rows are in chronological order, use --step row-order."
    )


def test_column_missing_from_one_of_several_files(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", small_log())
    write(tmp_path / "b.parquet", [{k: v for k, v in small_log()[2].items() if k != "terminated"}])
    assert complaint(f"{tmp_path}/*.parquet").startswith("b.parquet has no column 'terminated';")


@pytest.mark.parametrize("name", KINDS)
def test_no_objective(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, [row | {"ward": "north"} for row in small_log()])
    assert complaint(path, objectives=[]) == (
        "at least one objective is needed; got none. Name it with --objective;"
        f" numeric columns of {name} that could be one: gain, pain."
    )


def test_no_objective_and_none_in_sight(tmp_path: Path) -> None:
    rows = [{"episode": 1, "step": 0, "state": 1, "action": 2}]
    message = complaint(write(tmp_path / "log.csv", rows), objectives=[])
    assert message.endswith("log.csv has no numeric column that could be one.")


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("episode,step,state,state,action,gain,pain\n1,0,1,1,1,1,1\n")
    assert complaint(tmp_path / "log.csv") == "log.csv has two columns 'state'. Rename one."


# What can be wrong: cells. CSV rows start in line 2.


def where(name: str, row: int) -> str:
    """How a message calls the row, from 0."""
    if ".csv" in name or ".tsv" in name:
        return f"{name}, line {row + 2}"
    return f"{name}, {'line' if name.endswith('.jsonl') else 'row'} {row + 1}"


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("column", ["episode", "state", "action"])
def test_null_label(tmp_path: Path, name: str, column: str) -> None:
    message = complaint(write(tmp_path / name, changed(1, **{column: None})))
    assert message.startswith(f"every row needs {'a' if column == 'state' else 'an'} {column}; got ")
    assert f"in column {column!r} of {where(name, 1)}. Fill it in" in message


@pytest.mark.parametrize("name", [*KINDS, "log.arrow"])
def test_null_reward(tmp_path: Path, name: str) -> None:
    nothing = "an empty cell" if "sv" in name else "null"
    assert complaint(write(tmp_path / name, changed(2, pain=None))) == (
        f"rewards must be finite numbers; got {nothing} in column 'pain' of {where(name, 2)}."
        " Correct the cell or drop its episode."
    )


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("value", "shown"), [("nan", "nan"), ("inf", "inf infinity"), ("1e200", "1e200 1e+200")])
def test_reward_that_is_no_finite_number(tmp_path: Path, name: str, value: str, shown: str) -> None:
    message = complaint(write(tmp_path / name, changed(0, gain=float(value))))
    quoted = message.split("got ")[1].split(" in ")[0].strip("'").lower()
    assert quoted in shown
    assert f"in column 'gain' of {where(name, 0)}." in message


def test_reward_that_is_text(tmp_path: Path) -> None:
    message = "rewards must be finite numbers; got 'n/a' in column 'pain' of {}. Correct the cell or drop its episode."
    for name in ("log.csv", "log.jsonl"):
        assert complaint(write(tmp_path / name, changed(1, pain="n/a"))) == message.format(where(name, 1))
    rows = [row | {"pain": str(row["pain"])} for row in small_log()]
    rows[1]["pain"] = "n/a"
    assert complaint(write(tmp_path / "log.parquet", rows)) == message.format("log.parquet, row 2")


def test_lines_count_line_breaks_in_cells_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text('episode,step,"sta\nte",action,gain,pain\n1,0,"a\nb\nc",b,1,1\n\n1,1,x,b,oops,1\n')
    assert "in column 'gain' of log.csv, line 7." in complaint(path, Columns(state="sta\nte"))


def test_bad_cell_in_the_second_file(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", small_log())
    write(tmp_path / "b.csv", [row | {"episode": 5, "gain": "?"} for row in small_log()[:1]])
    assert "got '?' in column 'gain' of b.csv, line 2." in complaint(f"{tmp_path}/*.csv")


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for part in ("x", "y"):
        (tmp_path / part).mkdir()
    write(tmp_path / "x" / "log.csv", small_log())
    bad = write(tmp_path / "y" / "log.csv", [row | {"episode": 5, "gain": "?"} for row in small_log()[:1]])
    assert f"of {bad}, line 2." in complaint(f"{tmp_path}/*/log.csv")


@pytest.mark.parametrize("name", KINDS)
def test_step_that_is_no_integer(tmp_path: Path, name: str) -> None:
    message = complaint(write(tmp_path / name, [row | {"step": row["step"] + 0.5} for row in small_log()]))
    assert message == (
        f"steps must be integers; got '0.5' in column 'step' of {where(name, 0)}."
        " Number the rows of each episode 0, 1, 2, ... (times: by their order); or, if the rows are in chronological order,"
        " use --step row-order."
    )


@pytest.mark.parametrize("value", ["soon", 10**19])
def test_step_that_is_out_of_the_question(tmp_path: Path, value: object) -> None:
    message = complaint(write(tmp_path / "log.csv", changed(1, step=value)))
    assert message.startswith(f"steps must be integers; got '{value}' in column 'step' of log.csv, line 3.")


def test_flags_in_many_spellings(tmp_path: Path) -> None:
    for no, yes in [("0", "1"), ("f", "T"), ("no", "YES"), (" False", "true "), ("0.0", "1.0")]:
        rows = [row | {"terminated": yes if row["terminated"] else no} for row in small_log()]
        assert read(write(tmp_path / "log.csv", rows)).terminated.tolist() == [False, True, False]
    rows = [row | {"terminated": int(row["terminated"])} for row in small_log()]
    assert read(write(tmp_path / "log.parquet", rows)).terminated.tolist() == [False, True, False]


@pytest.mark.parametrize("name", ["log.csv", "log.jsonl"])
@pytest.mark.parametrize("value", ["maybe", None])
def test_flag_that_is_none(tmp_path: Path, name: str, value: str | None) -> None:
    message = complaint(write(tmp_path / name, changed(2, terminated=value)))
    assert message.startswith("terminated must be true or false; got ")
    assert f"in column 'terminated' of {where(name, 2)}." in message


def test_terminated_and_truncated(tmp_path: Path) -> None:
    rows = [row | {"truncated": i != 0} for i, row in enumerate(small_log())]
    assert complaint(write(tmp_path / "log.jsonl", rows)) == (
        "a row can't be both terminated (column 'terminated') and truncated; got 'true' in column"
        " 'truncated' of log.jsonl, line 2. Set truncated to false where the process itself ended."
    )


@pytest.mark.parametrize(
    ("value", "start"), [(0, "a logged action can't have had probability 0"), (1.5, "baseline_prob must be")]
)
def test_impossible_baseline_probability(tmp_path: Path, value: float, start: str) -> None:
    rows = [row | {"baseline_prob": 0.5} for row in small_log()]
    rows[1]["baseline_prob"] = value
    for name in KINDS:
        message = complaint(write(tmp_path / name, rows))
        assert message.startswith(start)
        assert f"in column 'baseline_prob' of {where(name, 1)}." in message


@pytest.mark.parametrize("value", [None, float("nan")])
def test_missing_baseline_probability(tmp_path: Path, value: float | None) -> None:
    rows = [row | {"p": 0.5} for row in small_log()]
    rows[2]["p"] = value
    message = complaint(write(tmp_path / "log.jsonl", rows), Columns(baseline_prob="p"))
    assert message.startswith("baseline_prob must be a probability in (0, 1]; got ")
    assert "in column 'p' of log.jsonl, line 3." in message


# What can be wrong: labels.


@pytest.mark.parametrize("name", KINDS)
def test_real_numbers_are_no_labels(tmp_path: Path, name: str) -> None:
    rows = [row | {"action": 1 + 0.25 * i} for i, row in enumerate(small_log())]
    assert complaint(write(tmp_path / name, rows)) == (
        f"action labels must be integers or text; got '1.25' in column 'action' of {where(name, 1)}."
        " Discretise the column into bins and write the bin's number or name."
    )


def test_mixed_types_in_json(tmp_path: Path) -> None:
    assert complaint(write(tmp_path / "log.jsonl", changed(1, action=3))) == (
        "mixed types: action labels must be all numbers or all text; got 'go', text, in column 'action' of"
        " log.jsonl, line 1 and a number elsewhere (column 'action'). Write them with one type."
    )


def test_state_and_next_state_of_two_types(tmp_path: Path) -> None:
    rows = [row | {"state": {"a": 0, "b": 1}[row["state"]]} for row in small_log()]
    for name in ("log.parquet", "log.jsonl", "log.arrow"):
        message = complaint(write(tmp_path / name, rows))
        assert message.startswith("mixed types: state labels must be all numbers or all text; got 'b', text, in")
        assert f"column 'next_state' of {where(name, 0)} and a number elsewhere (column 'state')." in message


def test_a_column_of_two_types_in_two_files(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", small_log())
    write(tmp_path / "b.parquet", [row | {"episode": 9, "action": 1} for row in small_log()[2:]])
    assert complaint(f"{tmp_path}/*.parquet") == (
        "mixed types: column 'action' holds text in a.parquet but numbers in b.parquet. Write it with one type."
    )


def test_labels_that_are_lists_or_too_long(tmp_path: Path) -> None:
    for name in ("log.jsonl", "log.parquet"):
        rows = [row | {"action": [1, 2]} for row in small_log()]
        message = complaint(write(tmp_path / name, rows))
        assert message.startswith("action labels must be single values; got '[1")
        assert f"in column 'action' of {where(name, 0)}." in message
    table = pa.table(small_log_columns() | {"action": pa.array([1, 2, 2**64 - 1], pa.uint64())})
    parquet.write_table(table, tmp_path / "log.parquet")
    message = complaint(tmp_path / "log.parquet")
    assert message.startswith("integer action labels must fit in 64 bits; got '18446744073709551615' in column")


# What can be wrong: how rows follow each other.


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("bare", [False, True])
def test_duplicate_step(tmp_path: Path, name: str, bare: bool) -> None:
    rows = changed(2, episode=1, step=0)
    if bare:
        rows = [{k: v for k, v in row.items() if k not in {"next_state", "terminated"}} for row in rows]
    assert complaint(write(tmp_path / name, rows)) == (
        f"steps must be unique within an episode; step 0 of episode 1 is in {where(name, 0)} and again in"
        f" column 'step' of {where(name, 2)}. Remove one of the rows, or give different episodes different"
        " labels in column 'episode'."
    )


def test_duplicate_step_in_two_files(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        write(tmp_path / name, small_log())
    message = complaint(f"{tmp_path}/*.csv")
    assert "step 0 of episode 1 is in a.csv, line 2 and again in column 'step' of b.csv, line 2." in message


@pytest.mark.parametrize("name", [*KINDS, "log.arrow"])
@pytest.mark.parametrize("bare", [False, True])
def test_gap_in_steps(tmp_path: Path, name: str, bare: bool) -> None:
    rows = changed(1, step=3)
    if bare:
        rows = [{k: v for k, v in row.items() if k not in {"next_state", "terminated"}} for row in rows]
    assert complaint(write(tmp_path / name, rows)) == (
        f"steps must be consecutive within an episode; episode 1 goes from 0 to 3 in column 'step' of"
        f" {where(name, 1)}. Add the missing rows, renumber the steps, or, if the rows are in chronological order,"
        " use --step row-order."
    )


def test_duplicate_and_gap_that_cancel_in_the_count(tmp_path: Path) -> None:
    rows = [{"episode": 1, "step": step, "state": 0, "action": 0, "gain": 0, "pain": 0} for step in (0, 1, 1, 3)]
    assert "step 1 of episode 1" in complaint(write(tmp_path / "log.csv", rows))
    for row in rows:
        row |= {"next_state": 0, "terminated": False}
    assert "step 1 of episode 1" in complaint(write(tmp_path / "log.csv", rows))


@pytest.mark.parametrize("name", KINDS)
def test_contradicting_next_state(tmp_path: Path, name: str) -> None:
    message = (
        f"next_state must be the state of the next row; got 'a' in column 'next_state' of {where(name, 0)},"
        f" but episode 1 goes on in state 'b' in {where(name, 1)}. Correct one of them."
    )
    rows = changed(0, next_state="a")
    assert complaint(write(tmp_path / name, rows)) == message
    unknown = [dict(row) for row in rows]
    unknown[2]["next_state"] = None  # the rows then have to be completed from each other
    assert complaint(write(tmp_path / name, unknown)) == message
    assert complaint(write(tmp_path / name, rows), Columns(step="row-order")) == message


def test_swapped_next_states_do_not_cancel(tmp_path: Path) -> None:
    rows: Rows = [
        {
            "episode": 1,
            "step": t,
            "state": t,
            "action": 0,
            "next_state": x,
            "terminated": t == 3,
            "gain": 0,
            "pain": 0,
        }
        for t, x in enumerate((2, 1, 3, None))
    ]
    message = complaint(write(tmp_path / "log.parquet", rows))
    assert "got 2 in column 'next_state' of log.parquet, row 1, but episode 1 goes on in state 1" in message


@pytest.mark.parametrize("role", ["terminated", "truncated"])
def test_row_after_the_end(tmp_path: Path, role: str) -> None:
    rows = [{k: v for k, v in row.items() if k != "terminated"} | {role: i == 0} for i, row in enumerate(small_log())]
    for name in KINDS:
        message = (
            f"a {role} row must be the last of its episode; column {role!r} of {where(name, 0)} ends"
            f" episode 1, but {where(name, 1)} goes on with it."
            " Correct the flag, or give the later rows another episode label."
        )
        assert complaint(write(tmp_path / name, rows)) == message
        assert complaint(write(tmp_path / name, rows), Columns(step="row-order")) == message


def test_families_that_a_type_can_have_are_all_that_are_found() -> None:
    """What is not asked of a column because of its type is not there: every shape against all cells that it can hold."""
    cases: dict[str, tuple[str, list[str]]] = {
        "int": ("BIGINT", ["1", "NULL"]),
        "huge": ("UBIGINT", ["1", "18446744073709551615", "NULL"]),
        "float": ("DOUBLE", ["1.0", "1.5", "'nan'", "'inf'", "1e300", "NULL"]),
        "bool": ("BOOLEAN", ["true", "NULL"]),
        "text": ("VARCHAR", ["'a'", "'1'", "NULL"]),
        "cell": (
            "VARCHAR",
            ["'a'", "'1'", "'1.0'", "'1.5'", "'007'", "'1e300'", "'99999999999999999999'", "'nan'", "NULL"],
        ),
        "json": ("JSON", ["'1'", "'1.5'", "'\"a\"'", "'true'", "'[1]'", "'null'", "'18446744073709551615'", "NULL"]),
        "nested": ("INTEGER[]", ["[1]", "NULL"]),
        "null": ("INTEGER", ["NULL"]),
    }
    for form, (kind, values) in cases.items():
        shape: Any = form
        rows = " UNION ALL ".join(f"SELECT CAST({value} AS {kind}) AS c" for value in values)
        found = duckdb.sql(
            f"SELECT {cells.family('c', shape)} AS family, {cells.missing('c', shape)} AS missing FROM ({rows})"
        ).fetchall()
        assert {family for family, _ in found if family} <= set(cells.families(shape)), form
        assert all((family is None) == missing for family, missing in found), form
