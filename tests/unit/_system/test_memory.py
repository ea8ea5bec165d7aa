"""What a step is said to take, against what it takes."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from bettersafe._system import memory
from bettersafe._system.memory import VARIABLE, available_bytes, check_memory
from bettersafe.errors import MemoryLimitError, ParameterError
from bettersafe.logs.counts import Counts
from bettersafe.logs.counts_file import counted_sizes, save_counts
from bettersafe.logs.dataset import Objective
from bettersafe.logs.source import count_files, read_dataset
from bettersafe.tasks.run import run_task
from bettersafe.tasks.task import Task
from logs import GAIN, PAIN, saved_log, small_log, write

if TYPE_CHECKING:
    from pathlib import Path

MEASURED = """
import json, sys, warnings
import numpy, scipy.sparse, duckdb, pyarrow.parquet
import bettersafe.tasks.run, bettersafe.logs.counts_file, bettersafe.logs._reader.relation, bettersafe.logs._reader.count_sql
from bettersafe._system import memory
from bettersafe.logs.source import count_files, read_dataset
from bettersafe.logs.dataset import Objective
from bettersafe.logs.episodes import Episodes
from bettersafe.evaluation.evaluate import comparison_rows
from bettersafe.runs.run import save_run
from bettersafe.tasks.task import Task

step, path, d = sys.argv[1], sys.argv[2], int(sys.argv[3])
objectives = tuple(Objective(name=f"r{k}") for k in range(d))
before = memory._in_use()
if step == "model":
    sizes = bettersafe.logs.counts_file.counted_sizes(path)
    said = memory.counts_bytes(sizes) + memory.model_bytes(sizes)
    run = bettersafe.tasks.run.run_task(Task(data=path, objectives=objectives, method="s-opt"))
    save_run(run, path + ".run")
elif step == "linearised":
    sizes = bettersafe.logs.counts_file.counted_sizes(path)
    task = Task(data=path, objectives=objectives, method="b-opt", form="linearised")
    said = memory.counts_bytes(sizes) + bettersafe.tasks.outcomes.task_bytes(task, sizes)
    save_run(bettersafe.tasks.run.run_task(task), path + ".run")
elif step == "evaluation":
    block = read_dataset(path, objectives=objectives)
    episodes = Episodes(
        blocks=lambda: [block] * 40, n_rows=40 * block.n_rows, n_episodes=40 * block.n_episodes, n_truncated=0,
        state_labels=block.state_labels, action_labels=block.action_labels, objectives=objectives,
    )
    policy = numpy.full((block.n_states, block.n_actions), 1.0 / block.n_actions)
    said = memory.evaluation_bytes(episodes.n_episodes, d)
    before = memory._in_use()
    comparison_rows(episodes, policy, policy, folds=2, delta=0.1)
elif step == "folds":
    from bettersafe.evaluation import value_models

    block = read_dataset(path, objectives=objectives)
    policy = numpy.full((block.n_states, block.n_actions), 1.0 / block.n_actions)

    def check(needed, what):
        global said, before
        said, before = needed, memory._in_use()
        open("/proc/self/clear_refs", "w").write("5")

    value_models.check_memory = check
    value_models.crossfit(block, policy, 5, numpy.random.default_rng(0), lambda fit: value_models.value_model_of(fit, policy, policy))
elif step == "log":
    said = memory.log_bytes(read_dataset(path, objectives=objectives).n_rows, d)
else:
    from bettersafe.logs._reader import count_native, count_sql

    def check(needed, what):  # what is asked for when all rows have been read
        global said, before
        said, before = needed, memory._in_use()
        open("/proc/self/clear_refs", "w").write("5")  # let the peak begin anew

    count_sql.check_memory = count_native.check_memory = check
    if step == "tally by SQL":
        count_native.count_sorted = lambda *_, **__: None
    count_files(path, objectives=objectives)
with open("/proc/self/status") as status:  # getrusage would also have what the process that started this one took
    peak = 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
print(json.dumps({"said": said, "taken": peak - before}))
"""


def said_and_taken(step: str, path: Path, d: int) -> tuple[float, float]:
    environment = {**os.environ, VARIABLE: "none", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, step, str(path), str(d)],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    found = json.loads(done.stdout)
    return found["said"], found["taken"]


def saved_counts(path: Path, n_states: int, n_actions: int, tried: int, successors: int, d: int) -> Path:
    rng = np.random.default_rng(0)
    n_pairs = n_states * tried
    first = np.repeat(rng.integers(0, n_actions - tried + 1, n_states), tried)
    outcome = np.sort((rng.integers(0, n_states, (n_pairs, 1)) + 7 * np.arange(successors)) % n_states, axis=1)
    led = rng.integers(1, 20, (n_pairs, successors))
    visits = led.sum(axis=1) + 1
    rewards = rng.normal(size=(d, n_pairs)) * visits
    ones = np.ones(d)
    counts = Counts(
        state_labels=np.arange(n_states),
        action_labels=np.arange(n_actions),
        objectives=tuple(Objective(name=f"r{k}") for k in range(d)),
        pair_state=np.repeat(np.arange(n_states), tried),
        pair_action=first + np.tile(np.arange(tried), n_states),
        pair_count=visits,
        outcome_ptr=np.arange(n_pairs + 1) * successors,
        outcome_state=outcome.ravel(),
        outcome_count=led.ravel(),
        terminated_count=np.ones(n_pairs),
        reward_sum=rewards,
        reward_square_sum=rewards**2 / visits + visits,
        reward_min=-9 * ones,
        reward_max=9 * ones,
        unseen_reward=0 * ones,
        initial_count=np.arange(n_states) < 5,
        n_rows=int(visits.sum()),
        n_episodes=5,
        n_truncated=0,
        n_dropped=0,
        length_min=1,
        length_max=9,
        return_sum=ones,
        return_square_sum=ones,
        return_min=-ones,
        return_max=ones,
    )
    save_counts(counts, path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 3])
def test_evaluation_takes_what_was_said(tmp_path: Path, d: int) -> None:
    path = saved_log(tmp_path / "log.parquet", 15_000, 2, 10, d)
    said, taken = said_and_taken("evaluation", path, d)  # 600,000 episodes, which come in blocks
    assert taken / 2 <= said <= 2 * taken, (said, taken)


@pytest.mark.parametrize("sizes", [(30_000, 25, 3, 8, 4), (60_000, 6, 2, 20, 1)])
def test_model_takes_what_was_said(tmp_path: Path, sizes: tuple[int, int, int, int, int]) -> None:
    path = saved_counts(tmp_path / "counts.parquet", *sizes)
    said, taken = said_and_taken("model", path, sizes[-1])
    assert taken / 2 <= said <= 2 * taken, (said, taken)


@pytest.mark.slow
def test_the_linearised_form_takes_what_was_said(tmp_path: Path) -> None:
    path = saved_counts(tmp_path / "counts.parquet", 30_000, 25, 3, 8, 2)
    said, taken = said_and_taken("linearised", path, 2)
    assert taken / 2 <= said <= 2 * taken, (said, taken)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "rows", "n_states", "d"),
    [
        ("log", 500_000, 2000, 2),
        ("log", 1_500_000, 2000, 4),
        ("folds", 1_000_000, 20_000, 2),
        ("folds", 500_000, 200_000, 1),
        ("tally", 4_000_000, 100_000, 1),
        ("tally", 4_000_000, 200_000, 2),
        ("tally by SQL", 4_000_000, 200_000, 2),
    ],
)
def test_reading_and_counting_take_what_was_said(tmp_path: Path, step: str, rows: int, n_states: int, d: int) -> None:
    path = saved_log(tmp_path / "log.parquet", rows // 10, 10, n_states, d)
    said, taken = said_and_taken(step, path, d)
    within = (
        3 if step == "tally by SQL" else 2
    )  # DuckDB's own buffers, which its limit bounds, come and go: 150 to 400 MB in nine runs
    assert taken / within <= said <= within * taken, (said, taken)


def test_what_needs_too_much_is_refused_with_the_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = write(tmp_path / "log.parquet", small_log())
    save_counts(count_files(log, objectives=[GAIN, PAIN]), tmp_path / "counts.parquet")
    task = Task(data=str(tmp_path / "counts.parquet"), objectives=(GAIN, PAIN), method="s-opt")
    sizes = counted_sizes(tmp_path / "counts.parquet")
    assert (sizes.n_states, sizes.n_actions, sizes.n_pairs, sizes.n_outcomes, sizes.n_objectives) == (2, 2, 2, 1, 2)
    monkeypatch.setenv(VARIABLE, "1MB")  # less than is in use: nothing is left
    with pytest.raises(
        MemoryLimitError, match=r"s-opt on 2 states × 2 actions with 2 pairs.* needs about 150 MB .* 0 MB are"
    ):
        run_task(task)
    with pytest.raises(MemoryLimitError, match=r"reading the 3 rows of .*log.parquet into memory.* needs about 100 MB"):
        read_dataset(log, objectives=[GAIN, PAIN])
    with pytest.raises(MemoryLimitError, match=r"counting 2 different transitions of log.parquet needs about 25 MB"):
        count_files(log, objectives=[GAIN, PAIN])
    monkeypatch.setenv(VARIABLE, "none")
    assert available_bytes() == math.inf
    assert run_task(task).info.n_pairs == 2


def test_text_is_refused_when_its_rows_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = write(tmp_path / "log.csv", small_log())
    monkeypatch.setenv(VARIABLE, "1MB")
    with pytest.raises(MemoryLimitError, match=r"reading the 3 rows of log.csv into memory"):
        read_dataset(log, objectives=[GAIN, PAIN])


def test_sizes_that_the_variable_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, size in {"8GB": 8e9, "1.5 g": 1.5e9, "2GiB": 2.0**31, "700": 700.0, "none": math.inf}.items():
        monkeypatch.setenv(VARIABLE, text)
        assert memory.memory_limit() == size
    monkeypatch.setenv(VARIABLE, "")
    assert memory.memory_limit() is None
    monkeypatch.setenv(VARIABLE, "much")
    with pytest.raises(ParameterError, match=rf"{VARIABLE} must be a size such as 8GB, or none; got 'much'"):
        check_memory(1.0, "a step")


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content, encoding="ascii")


def test_what_is_left_in_control_groups(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    group(root, cgroup__procs="")
    stat = "anon 50\ninactive_file 30\n"
    group(root / "a", memory__max="1000", memory__current="900", memory__stat=stat)
    group(root / "a/b", memory__max="max", memory__current="400", memory__stat=stat)
    own = tmp_path / "own"
    own.write_text("0::/a/b\n", encoding="ascii")
    assert [left for left in memory._free_in_groups(own, root) if left is not None] == [130.0]
    older = "inactive_file 1\ntotal_inactive_file 25\n"
    group(root / "memory/c", memory__limit_in_bytes="500", memory__usage_in_bytes="100", memory__stat=older)
    own.write_text("4:cpu:/c\n3:memory:/c\n", encoding="ascii")
    assert [left for left in memory._free_in_groups(own, root) if left is not None] == [425.0]
    assert list(memory._free_in_groups(tmp_path / "none", root)) == []


def test_what_is_free_in_the_system(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 90 kB\nMemAvailable:   70 kB\n", encoding="ascii")
    assert memory._free_in_system(meminfo) == 70 * 1024
    assert memory._free_in_system(tmp_path / "none") is None
    assert memory._in_use() > 1e6
