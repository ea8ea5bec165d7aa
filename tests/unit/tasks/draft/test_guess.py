"""Columns of a log guessed for a task file: what is guessed, and what is not."""

from __future__ import annotations

import tomllib

import pytest

from bettersafe.errors import DataError
from bettersafe.logs.source import count_files
from bettersafe.tasks.draft import guess, guess_task, task_text, write_start
from bettersafe.tasks.toml import read_task
from logs import FORMATS, rows_of, small_log, write


def roles(start):
    return {guess.role: guess.column for guess in start.roles}


@pytest.mark.parametrize("name", FORMATS)
def test_the_plain_log_is_understood_in_every_format(name, tmp_path):
    log = [{**row, "episode": row["episode"] + 10 * k} for k in range(4) for row in small_log()]
    start = guess_task(write(tmp_path / name, log))
    assert roles(start) == {
        role: role for role in ("episode", "step", "state", "action", "next_state", "terminated")
    }  # fmt: skip
    assert {o.column: o.lower_is_better for o in start.objectives} == {"gain": False, "pain": True}
    assert start.complete
    assert start.whole


def test_cells_have_a_veto(tmp_path):
    log = rows_of(
        done=lambda i: "abc"[i % 3], prob=lambda i: 2.0, next_state=lambda i: 0.5 + i, truncated=lambda i: "no",
        timeout=lambda i: i,
    )  # fmt: skip
    found = roles(guess_task(write(tmp_path / "log.csv", log)))
    assert not {"terminated", "baseline_prob", "next_state"} & set(found)
    assert found["truncated"] == "truncated"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda i: 4 * (i % 2), "it has gaps"),
        (lambda i: 0, "repeats a number"),
        (lambda i: i + 0.5, "whole numbers"),
    ],
)
def test_a_step_that_is_none_is_left_to_decide(change, reason, tmp_path):
    log = [{**row, "bloc": change(i)} for i, row in enumerate(rows_of(r=lambda i: i % 5))]
    write(tmp_path / "log.csv", log)
    start = write_start(str(tmp_path / "log.csv"), tmp_path / "task.toml")
    assert not start.complete
    assert reason in start.open["step"]
    text = (tmp_path / "task.toml").read_text(encoding="utf-8")
    assert "# DECIDE step" in text
    assert 'step = "row-order"' in text
    read_task(tmp_path / "task.toml")  # still a task file
    (tmp_path / "task.toml").write_text(text.replace('# step = "..."', 'step = "row-order"'), encoding="utf-8")
    task = read_task(tmp_path / "task.toml")
    assert count_files(task.data, objectives=task.objectives, columns=task.columns).n_rows == 12


def test_a_column_that_alone_could_be_it_is_taken_and_equals_are_not(tmp_path):
    log = [
        {
            "Aufenthalt": row["stay_id"],
            "Nummer": row["bloc"],
            "state": row["cluster"],
            "was getan": row["dose"],
            "r": i % 5,
        }
        for i, row in enumerate(rows_of(24))
    ]
    found = roles(guess_task(write(tmp_path / "one.csv", log)))
    assert (found["episode"], found["step"]) == ("Aufenthalt", "Nummer")  # the only two of which one counts the other
    again = [{**row, "Zähler": row["Nummer"]} for row in log]
    start = guess_task(write(tmp_path / "equals.csv", again))
    assert set(start.open) == {"episode", "step", "action"}  # nothing is named that tells them apart
    assert "Nummer" in start.open["step"]
    jumps = [{**row, "Nummer": 3 * row["Nummer"]} for row in log]
    assert "step" in guess_task(write(tmp_path / "jumps.csv", jumps)).open
    named = [{"episode": row.pop("Aufenthalt"), **row} for row in log]
    found = roles(guess_task(write(tmp_path / "two.csv", named)))
    assert found["step"] == "Nummer"
    assert found["action"] == "was getan"
    both = [{**row, "zweites": row["was getan"]} for row in named]
    assert "action" in guess_task(write(tmp_path / "three.csv", both)).open


def test_what_has_only_states_in_it_is_the_next_state(tmp_path):
    log = [
        {**row, "cluster": "abc"[i % 3], "afterwards": "" if i % 2 else "bca"[i % 3], "over": "yes" if i % 2 else "no", "r": i % 5}
        for i, row in enumerate(rows_of(24))
    ]  # fmt: skip
    log = [{**row, "dose": "d" + row["dose"]} for row in log]
    start = guess_task(write(tmp_path / "log.csv", log))
    assert roles(start)["next_state"] == "afterwards"
    assert "process ended" in start.unused["over"]
    log[4]["afterwards"] = "home"
    assert "next_state" not in roles(guess_task(write(tmp_path / "other.csv", log)))


def test_numbers_with_fractions_are_no_states(tmp_path):
    log = [{**row, "cluster": i / 7} for i, row in enumerate(rows_of(r=lambda i: i % 5))]
    start = guess_task(write(tmp_path / "log.csv", log))
    assert "discretize" in start.open["state"]
    assert not any(o.used for o in start.objectives if o.column == "cluster")


def test_directions_and_what_is_no_objective(tmp_path):
    log = rows_of(
        reward_pain=lambda i: -float(i), price=lambda i: i + 0.5, dull=lambda i: 1, key=lambda i: 100 - i,
        hole=lambda i: None if i == 3 else i, time=lambda i: i % 5,
    )  # fmt: skip
    start = guess_task(write(tmp_path / "log.csv", log))
    found = {o.column: o for o in start.objectives}
    assert found["reward_pain"].used
    assert not found["reward_pain"].lower_is_better
    assert "negative" in found["reward_pain"].reason
    assert found["price"].lower_is_better
    assert [name for name, o in found.items() if not o.used] == ["dull", "key", "hole", "time"]
    text = task_text(start, "log.csv")
    assert '# lower_is_better = true      # its name says "pain", but it has negative values' in text
    assert set(tomllib.loads(text)["objectives"]) == {"reward_pain", "price"}


def test_many_numbers_are_features(tmp_path):
    more = {f"vital_{k}": (lambda i, k=k: (i * k) % 7 + 0.5) for k in range(1, 15)}
    start = guess_task(write(tmp_path / "log.csv", rows_of(survival=lambda i: i % 3, **more)))
    assert [o.column for o in start.objectives if o.used] == ["survival"]


def test_only_the_first_rows_of_a_large_file_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(guess, "SAMPLE", 6)
    log = rows_of(r=lambda i: i % 5)
    log[8]["bloc"] = 77
    start = guess_task(write(tmp_path / "log.csv", log))
    assert start.rows == 6
    assert not start.whole
    assert roles(start)["step"] == "bloc"
    assert "the first 6 rows" in task_text(start, "log.csv")


def test_files_that_tell_nothing(tmp_path):
    (tmp_path / "log.csv").write_text("episode,step\n", encoding="utf-8")
    with pytest.raises(DataError, match="has no rows"):
        guess_task(tmp_path / "log.csv")
    with pytest.raises(DataError, match="there is no file"):
        guess_task(tmp_path / "gone.csv")
    start = guess_task(write(tmp_path / "text.csv", [{"a thing": "x"}, {"a thing": "y"}]))
    assert set(start.open) == {"episode", "step", "state", "action"}
    assert "DECIDE objectives" in task_text(start, "text.csv")
    assert not start.complete


def test_slips_in_a_column_of_numbers_are_named(tmp_path):
    log = rows_of(
        40,
        cost=lambda i: "about 40" if i == 7 else 10 + i % 3,
        pain=lambda i: None if i in (4, 9) else i % 5,
        left=lambda i: ("ja", "nein")[i % 2],
        r=lambda i: i % 4,
    )
    start = guess_task(write(tmp_path / "log.csv", log))
    reasons = {o.column: o.reason for o in start.objectives if not o.used}
    assert '"about 40" in row 8 below the header' in reasons["cost"]
    assert "2 of 40 sampled cells" in reasons["pain"]
    assert "the first in row 5 below the header" in reasons["pain"]
    assert "yes and no" in start.unused["left"]
    assert '# [objectives."cost"]' in task_text(start, "log.csv")


def test_a_column_with_an_empty_cell_is_still_named_as_one_that_could_be_it(tmp_path):
    log = [
        {"Zustand": None if i == 3 else f"z{i % 3}", **{k: v for k, v in row.items() if k != "cluster"}, "Rest": f"{i}"}
        for i, row in enumerate(rows_of(40, r=lambda i: i % 4))
    ]
    assert '"Zustand" (empty cells: 1)' in guess_task(write(tmp_path / "log.csv", log)).open["state"]


def test_times_are_no_states_and_say_how_they_become_steps(tmp_path):
    log = [
        {"patient": f"P{i // 3}", "charted": f"2026-01-0{i // 6 + 1} {10 + i % 3}:30", "ward": "abc"[i % 3], "dose": "xy"[i % 2], "gain": i}
        for i in range(24)
    ]  # fmt: skip
    start = guess_task(write(tmp_path / "visits.csv", log))
    assert "number the rows of each episode" in start.unused["charted"]
    assert "charted" not in start.open.get("state", "")
    assert "charted" not in start.open.get("action", "")
