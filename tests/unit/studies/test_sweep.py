"""Sweeps: the same rows however they were come by, and nothing lost that was finished."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from threadpoolctl import threadpool_limits

import toys
from bettersafe.errors import ParameterError, RunError
from bettersafe.studies.sweep import Study, job_key, read_rows, run_sweep
from bettersafe.typing import Event
from patience import TIMEOUT, until

TESTS = Path(toys.__file__).parent


def study(n=6, *, sleep=0.0, **changes):
    jobs = tuple({"seed": seed, "scale": 0.5 + seed, "sleep": sleep} for seed in range(n))
    return Study(**{"id": "toy/draws", "version": 1, "jobs": jobs, "work": "toys:draws"} | changes)


def fragile(*hows, **more):
    jobs = tuple({"seed": seed, "how": how, **more} for seed, how in enumerate(hows))
    return Study(id="toy/fragile", version=1, jobs=jobs, work="toys:fragile")


def expected_rows(wanted):
    """What the sweep must give, without it: the work called on each experiment in turn."""
    rows = []
    for job in wanted.jobs:
        text = json.dumps(
            {"settings": job, "study": wanted.id, "version": wanted.version}, sort_keys=True, separators=(",", ":")
        )
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        rows += [{"job": key, **job, **row} for row in getattr(toys, wanted.work.split(":")[1])(job)]
    return rows


def leftovers(folder):
    return [path.name for path in Path(folder).rglob(".*")]


# ---- names


def test_key_is_the_hash_of_canonical_json():
    text = '{"settings":{"a":[1,0.1,null],"b":"\\u00e9"},"study":"s","version":3}'
    expected = hashlib.sha256(text.encode()).hexdigest()[:16]
    assert job_key({"b": "é", "a": [1, 0.1, None]}, study="s", version=3) == expected
    assert job_key({"a": (1, 0.1, None), "b": "é"}, study="s", version=3) == expected


def test_different_settings_have_different_keys():
    values = [1, 1.0, True, "1", None, [1], [1.0], float("inf"), "inf", "Infinity", 0.1, 0.1 + 2**-56]
    keys = {job_key({"a": value}, study="s", version=1) for value in values}
    keys |= {job_key({"a": 1}, study="t", version=1), job_key({"a": 1}, study="s", version=2)}
    assert len(keys) == len(values) + 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": ""}, "id must not be empty"),
        ({"work": "toys.draws"}, "must be 'module:function'; got 'toys.draws'"),
        ({"jobs": ()}, "has no experiments"),
        ({"jobs": ({"a": 1}, {"b": 1}, {"a": 1})}, r'experiments 0 and 2 .* same settings {"a": 1}'),
        ({"jobs": ({"a": {}},)}, "setting 'a' must be a string.*got dict"),
        ({"jobs": ({"a": [[1]]},)}, "setting 'a' must be a flat list"),
        ({"jobs": ({"a": [1.0, float("nan")]},)}, "setting 'a' is NaN"),
        ({"jobs": ({"a": 2**63},)}, "setting 'a' must fit into 64 bits"),
        ({"jobs": ({1: 1},)}, "must be a dictionary with names as keys"),
        ({"jobs": ({"job": 1},)}, "can't be named 'job'"),
    ],
)
def test_what_is_not_a_study(changes, message):
    with pytest.raises(ParameterError, match=message):
        study(**changes)


@pytest.mark.parametrize(
    ("work", "options", "message"),
    [
        ("toys:nothing", {}, "module toys has no function 'nothing'"),
        ("toyz:draws", {}, "No module named 'toyz'"),
        ("toys:draws", {"workers": 0}, "workers must be at least 1; got 0"),
        ("toys:draws", {"engine": "rai"}, "Did you mean 'ray'"),
        ("toys:draws", {"address": "auto"}, "an address is for the engine 'ray'"),
    ],
)
def test_wrong_parameters_cost_nothing(tmp_path, work, options, message):
    with pytest.raises(ParameterError, match=message):
        run_sweep(study(work=work), tmp_path / "s", **options)
    assert not (tmp_path / "s").exists()


# ---- rows


def test_rows_are_those_of_the_work_in_order(tmp_path):
    seen = []
    wanted = study()
    result = run_sweep(wanted, tmp_path / "s", workers=1, progress=seen.append)
    assert (result.done, result.skipped, result.rows) == (6, 0, tmp_path / "s" / "rows.parquet")
    table = read_rows(tmp_path / "s")
    assert table.to_pylist() == expected_rows(wanted)
    assert table.column_names == ["job", "seed", "scale", "sleep", "n", "value", "note"]
    assert read_rows(tmp_path / "s", partial=True).equals(table)
    assert seen == [Event(done=n, total=6, unit="experiments") for n in range(7)]
    assert not leftovers(tmp_path)


def test_what_is_in_the_files(tmp_path):
    wanted = study(2, jobs=({"seed": 0, "scale": float("inf")}, {"seed": 1, "scale": 1.0, "extra": [1, 2]}))
    run_sweep(wanted, tmp_path, workers=1)
    document = json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))
    keys = [job_key(job, study="toy/draws", version=1) for job in wanted.jobs]
    assert document["schema"] == "study/1"
    assert (document["id"], document["version"], document["work"]) == ("toy/draws", 1, "toys:draws")
    assert document["versions"][0]["pyarrow"] == pa.__version__
    assert document["jobs"] == [
        {"job": keys[0], "settings": {"seed": 0, "scale": "inf"}},
        {"job": keys[1], "settings": {"seed": 1, "scale": 1.0, "extra": [1, 2]}},
    ]
    metadata = pq.read_schema(tmp_path / "parts" / f"{keys[1]}.parquet").metadata
    assert metadata[b"bettersafe.schema"] == b"study/1"
    assert metadata[b"bettersafe.job"] == keys[1].encode()
    assert float(metadata[b"bettersafe.seconds"]) >= 0.0
    assert read_rows(tmp_path)["scale"].to_pylist()[0] == float("inf")


def test_columns_of_several_kinds_fit_together(tmp_path):
    wanted = study(work="toys:kinds", jobs=({"seed": 0, "only": 1}, {"seed": 1}, {"seed": 2, "late": "x"}))
    run_sweep(wanted, tmp_path / "s", workers=1)
    table = read_rows(tmp_path / "s")
    assert table.column_names == ["job", "seed", "only", "late", "a", "b", "c", "d", "e"]
    assert table.schema.field("a").type == pa.float64()
    assert table["a"].to_pylist() == [1.0, 0.5, 2.0]
    assert table["b"].to_pylist() == [None, "text", None]
    assert table["c"].to_pylist() == [[], [1, 2], None]
    assert table["e"].to_pylist() == [None, None, True]
    assert table["late"].to_pylist() == [None, "x", "x"]
    with pytest.raises(RunError, match=r"can't be combined.*Field b has incompatible types"):
        run_sweep(study(work="toys:kinds", jobs=({"seed": 2}, {"seed": 3})), tmp_path / "t", workers=1)


def test_two_workers_give_the_rows_of_one(tmp_path):
    wanted = study(20, sleep=0.01)
    for workers in (1, 2):
        run_sweep(wanted, tmp_path / str(workers), workers=workers)
    assert read_rows(tmp_path / "2").to_pylist() == expected_rows(wanted)
    files = [(tmp_path / name / "rows.parquet").read_bytes() for name in ("1", "2")]
    assert files[0] == files[1]


def test_numerical_libraries_have_one_thread_everywhere(tmp_path, monkeypatch):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    wanted = study(work="toys:numerics", jobs=({"seed": 0}, {"seed": 1}))
    for workers in (1, 2):
        with threadpool_limits(2):
            run_sweep(wanted, tmp_path / str(workers), workers=workers)
    table = read_rows(tmp_path / "1")
    assert table["threads"].to_pylist() == table["cores"].to_pylist() == [1, 1]
    assert table.equals(read_rows(tmp_path / "2"))
    assert "OMP_NUM_THREADS" not in os.environ


# ---- continuing


def test_only_what_is_missing_is_done_again(tmp_path):
    wanted = study()
    run_sweep(wanted, tmp_path, workers=1)
    before, described = (tmp_path / "rows.parquet").read_bytes(), (tmp_path / "study.json").read_bytes()
    parts = [tmp_path / "parts" / f"{key}.parquet" for key in wanted.keys]
    parts[0].unlink()
    parts[1].write_bytes(parts[1].read_bytes()[:-20])  # cut short
    parts[2].write_bytes(b"")
    parts[3].write_bytes(parts[4].read_bytes())  # another's
    (tmp_path / "rows.parquet").unlink()
    result = run_sweep(wanted, tmp_path, workers=1)
    assert (result.done, result.skipped) == (4, 2)
    assert (tmp_path / "rows.parquet").read_bytes() == before
    assert (tmp_path / "study.json").read_bytes() == described
    data = parts[5].read_bytes().index("0é".encode())
    content = bytearray(parts[5].read_bytes())
    content[data] ^= 1
    parts[5].write_bytes(content)
    assert run_sweep(wanted, tmp_path, workers=1).done == 1
    assert run_sweep(wanted, tmp_path, workers=1).done == 0


def test_more_experiments_continue_and_fewer_are_a_part(tmp_path):
    run_sweep(study(3), tmp_path, workers=1)
    created = json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))["created"]
    result = run_sweep(study(7), tmp_path, workers=1)
    assert (result.done, result.skipped) == (4, 3)
    assert read_rows(tmp_path).to_pylist() == expected_rows(study(7))
    document = json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))
    assert (document["created"], len(document["jobs"]), len(document["versions"])) == (created, 7, 1)
    assert run_sweep(study(2), tmp_path, workers=1).done == 0
    assert read_rows(tmp_path).to_pylist() == expected_rows(study(2))
    assert run_sweep(study(7), tmp_path, workers=1).done == 0
    assert read_rows(tmp_path).to_pylist() == expected_rows(study(7))


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    folder = tmp_path / "s"
    run_sweep(study(3), folder, workers=1)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    other = tuple({"seed": seed, "scale": 9.0} for seed in range(3))
    for wanted, message in [
        (study(3, id="toy/other"), "contains the study 'toy/draws', not 'toy/other'. Choose another folder"),
        (study(3, version=2), "contains version 1 of the study 'toy/draws'; this is version 2"),
        (study(jobs=other), r'with other settings: 3 of its 3 experiments .*"scale": 0.5.*3 are new.*"scale": 9.0'),
    ]:
        with pytest.raises(RunError, match=message):
            run_sweep(wanted, folder, workers=1)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "letter.txt").touch()
    with pytest.raises(RunError, match="not empty and not the folder of a study"):
        run_sweep(study(), tmp_path / "t", workers=1)
    with pytest.raises(RunError, match="is a file"):
        run_sweep(study(), tmp_path / "t" / "letter.txt", workers=1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "can't be read.*Remove this file and run the sweep again"),
        ("[]", "has schema None"),
        ('{"schema": "study/2"}', "has schema 'study/2'; this version of bettersafe reads 'study/1'"),
        ('{"schema": "study/1", "jobs": [{}]}', "is not complete"),
        ('{"schema": "study/1", "jobs": []}', "is not complete"),
    ],
)
def test_a_bad_description_is_said_and_can_be_removed(tmp_path, content, message):
    run_sweep(study(), tmp_path, workers=1)
    (tmp_path / "study.json").write_text(content, encoding="utf-8")
    for attempt in (lambda: run_sweep(study(), tmp_path, workers=1), lambda: read_rows(tmp_path)):
        with pytest.raises(RunError, match=message):
            attempt()
    (tmp_path / "study.json").unlink()
    assert run_sweep(study(), tmp_path, workers=1).skipped == 6


def test_reading_tells_finished_from_unfinished(tmp_path):
    with pytest.raises(RunError, match=r"has no study\.json"):
        read_rows(tmp_path)
    wanted = study()
    run_sweep(study(3), tmp_path, workers=1)

    def stop(event):
        if event.done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(wanted, tmp_path, workers=1, progress=stop)
    with pytest.raises(RunError, match=r"not finished.*partial=True"):  # though rows.parquet of three is there
        read_rows(tmp_path)
    five = {job_key(job, study="toy/draws", version=1) for job in wanted.jobs[:5]}
    assert read_rows(tmp_path, partial=True).to_pylist() == [r for r in expected_rows(wanted) if r["job"] in five]
    for part in (tmp_path / "parts").iterdir():
        part.unlink()
    assert read_rows(tmp_path, partial=True).num_rows == 0
    pq.write_table(pa.table({"a": [1]}), tmp_path / "rows.parquet")
    with pytest.raises(RunError, match="has schema 'none'"):
        read_rows(tmp_path)
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunError, match="Run the sweep again"):
        read_rows(tmp_path)


def test_leftovers_of_the_dead_are_removed_and_of_the_living_kept(tmp_path):
    run_sweep(study(), tmp_path, workers=1)
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    host = os.uname().nodename
    names = {
        "dead": f".x.parquet.{int(dead.stdout)}@{host}.0123abcd.partial",
        "living": f".x.parquet.{os.getppid()}@{host}.0123abcd.partial",
        "elsewhere": f".x.parquet.{int(dead.stdout)}@{host}-2.0123abcd.partial",
    }
    for name in names.values():
        (tmp_path / "parts" / name).touch()
        (tmp_path / name).touch()
    run_sweep(study(), tmp_path, workers=1)
    assert sorted(leftovers(tmp_path)) == sorted([names["living"], names["elsewhere"]] * 2)


# ---- what goes wrong


@pytest.mark.parametrize("workers", [1, 2])
def test_failures_are_named_and_cost_nothing_else(tmp_path, workers):
    wanted = fragile("fine", "error", "odd error", "exit", "error", "fine")
    with pytest.raises(RunError) as caught:
        run_sweep(wanted, tmp_path, workers=workers)
    message = str(caught.value)
    assert "4 of 6 experiments of the study 'toy/fragile' failed" in message
    assert '{"seed": 1, "how": "error"}: ValueError: no luck with 1;' in message
    assert '{"seed": 2, "how": "odd error"}: OddError: 1 and 2;' in message
    assert '{"seed": 3, "how": "exit"}: SystemExit: leaving; and 1 more.' in message
    assert "in fragile" in caught.value.__notes__[0]
    assert read_rows(tmp_path, partial=True)["fine"].to_pylist() == [0, 5]
    assert not (tmp_path / "rows.parquet").exists()


def test_rows_that_are_none(tmp_path):
    reasons = {
        "number": "toys:wrong must return a list of dictionaries, one per row; got int",
        "clash": "a row has a column 'seed', which is also a setting",
        "nested": "column 'a' must be a flat list",
        "mixed": "column 'a' has values of different types",
        "object": "column 'a' must be a string, number, boolean, None, or a list of these; got object",
        "huge": "column 'a' must fit into 64 bits",
    }
    for how, reason in reasons.items():
        wanted = study(id="toy/wrong", work="toys:wrong", jobs=({"seed": 0, "how": how},))
        with pytest.raises(RunError, match=reason):
            run_sweep(wanted, tmp_path / how, workers=1)


def test_a_dead_worker_costs_only_what_was_under_way(tmp_path):
    wanted = fragile("fine", "die once", *["fine"] * 6, marker=str(tmp_path / "marker"))
    result = run_sweep(wanted, tmp_path / "s", workers=2)
    assert (result.done, result.skipped) == (8, 0)
    assert read_rows(tmp_path / "s")["fine"].to_pylist() == list(range(8))


def test_a_killer_is_found_among_innocents(tmp_path):
    """Neighbours are under way each time, but only the killer is given up, after three attempts."""
    wanted = fragile("die", *["count"] * 3, marker=str(tmp_path / "marker"))
    with pytest.raises(RunError, match=r'1 of 4 .*{"seed": 0, "how": "die".*its worker process died 3 times'):
        run_sweep(wanted, tmp_path / "s", workers=2)
    assert read_rows(tmp_path / "s", partial=True)["fine"].to_pylist() == [1, 2, 3]
    assert len((tmp_path / "marker").read_text(encoding="utf-8")) <= 3 * 3


@pytest.mark.slow
def test_a_sweep_that_only_kills_gives_up(tmp_path):
    with pytest.raises(RunError, match="3 of 9 experiments"):
        run_sweep(fragile(*["die"] * 9), tmp_path / "s", workers=2)


def test_a_full_disk_is_said(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bettersafe._system.files.os.replace", full)
    with pytest.raises(RunError, match=r"No space left on device\. Finished experiments are kept"):
        run_sweep(study(), tmp_path / "s", workers=1)
    assert not leftovers(tmp_path)


# ---- killing

DRIVER = """
import signal
import sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in what they start with &
sys.path.insert(0, sys.argv[1])
from bettersafe.studies.sweep import Study, run_sweep

if __name__ == "__main__":
    import json
    jobs = tuple(json.loads(sys.argv[3]))
    heard = 0

    def progress(event):
        global heard
        heard += 1
        print("heard of", event.done, flush=True)
        if heard == int(sys.argv[6]):
            signal.pause()  # until killed: however late that is, there is something left to do

    print("starting", flush=True)
    study = Study(id="toy/draws", version=1, jobs=jobs, work=sys.argv[5])
    run_sweep(study, sys.argv[2], workers=int(sys.argv[4]), progress=progress)
"""


@pytest.fixture
def start(tmp_path):
    """Start a sweep in a process group of its own; whatever is left of it is killed in the end."""
    script = tmp_path / "driver.py"
    script.write_text(DRIVER, encoding="utf-8")
    groups = []

    def begin(folder, jobs, workers, work="toys:draws", pause=0):
        process = subprocess.Popen(
            [sys.executable, str(script), str(TESTS), str(folder), json.dumps(jobs), str(workers), work, str(pause)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        groups.append(process)
        return process

    yield begin
    for process in groups:
        kill(process)
        process.communicate()


def kill(process, what=signal.SIGKILL):
    try:
        os.killpg(process.pid, what)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("times", [3, pytest.param(15, marks=pytest.mark.slow)])
def test_killed_at_random_moments_a_sweep_still_gives_the_same_rows(tmp_path, start, times):
    wanted = study(12 * times, sleep=0.02)
    folder = tmp_path / "killed"
    rng = random.Random(times)
    finished = [0]
    for n in range(times):
        process = start(folder, wanted.jobs, 1 + n % 2, pause=8)
        assert process.stdout.readline() == "starting\n"
        if n % 5 != 4:  # mostly in the midst of the work, sometimes before it
            assert process.stdout.readline().startswith("heard of")
            assert process.stdout.readline().startswith("heard of")
        time.sleep(rng.uniform(0.0, 0.1))
        kill(process)
        assert process.wait() == -signal.SIGKILL
        parts = list((folder / "parts").glob("*.parquet"))
        for part in parts:
            pq.read_table(part, use_threads=False)  # what has its name is whole
        assert len(parts) >= finished[-1] + (n % 5 != 4)  # it went on
        finished.append(len(parts))
    assert 0 < finished[-1] < len(wanted.jobs)
    result = run_sweep(wanted, folder, workers=2)
    assert result.skipped == finished[-1]
    run_sweep(wanted, tmp_path / "undisturbed", workers=1)
    assert read_rows(folder).equals(read_rows(tmp_path / "undisturbed"))
    assert (folder / "rows.parquet").read_bytes() == (tmp_path / "undisturbed" / "rows.parquet").read_bytes()
    assert not leftovers(folder)


def test_two_runs_on_one_folder_do_each_other_no_harm(tmp_path, start):
    wanted = study(40, sleep=0.02)
    runs = [start(tmp_path / "s", wanted.jobs, workers) for workers in (1, 2)]
    for process in runs:
        _, errors = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0, errors
    assert read_rows(tmp_path / "s").to_pylist() == expected_rows(study(40, sleep=0.02))
    assert not leftovers(tmp_path / "s")


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_stops_at_once(tmp_path, start, workers):
    jobs = [{"seed": seed, "marker": str(tmp_path / f"begun{seed}")} for seed in range(4)]
    process = start(tmp_path / "s", jobs, workers, "toys:slow")
    until((tmp_path / f"begun{workers - 1}").exists)
    assert kill(process, signal.SIGINT)
    _, errors = process.communicate(timeout=TIMEOUT)  # its work takes longer
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1  # the workers say nothing
    until(lambda: not kill(process, 0))  # all of its group
    assert not leftovers(tmp_path / "s")


def test_workers_end_with_a_killed_driver(tmp_path, start):
    jobs = [{"seed": seed, "marker": str(tmp_path / f"begun{seed}")} for seed in range(4)]
    process = start(tmp_path / "s", jobs, 2, "toys:slow")
    until((tmp_path / "begun1").exists)
    process.kill()
    process.wait()
    until(lambda: not kill(process, 0))  # all of its group


# ---- Ray


def test_without_ray_its_engine_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RunError, match=r"pip install 'bettersafe\[cluster\]'"):
        run_sweep(study(), tmp_path, engine="ray")


def test_a_cluster_that_is_not_there_is_said_at_once(ray, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
        with pytest.raises(RunError, match=rf"no Ray cluster could be reached at {address}: ConnectionRefusedError"):
            run_sweep(study(), tmp_path, engine="ray", address=address)


@pytest.mark.slow
def test_ray_gives_the_same_rows_and_survives_the_same_things(ray, tmp_path):
    settings = {"marker": str(tmp_path / "marker")}
    wanted = fragile("fine", "die once", "error", "odd error", "die", *["fine"] * 5, **settings)
    with pytest.raises(RunError) as caught:
        run_sweep(wanted, tmp_path / "far", engine="ray", workers=2, address="local")
    message = str(caught.value)
    assert "3 of 10 experiments" in message
    assert '"how": "error"' in message
    assert ": ValueError: no luck with 2;" in message
    assert ": OddError: 1 and 2;" in message
    assert "its Ray worker failed 3 times (WorkerCrashedError" in message
    assert not ray.is_initialized()
    table = read_rows(tmp_path / "far", partial=True)
    finished = Study(id=wanted.id, version=1, work=wanted.work, jobs=(*wanted.jobs[:2], *wanted.jobs[5:]))
    assert table.to_pylist() == expected_rows(finished)


@pytest.mark.long
def test_a_ray_session_that_was_there_stays(ray, tmp_path):
    ray.init(address="local", num_cpus=2, logging_level="ERROR", log_to_driver=False)
    try:
        wanted = study(40, sleep=0.01)
        run_sweep(wanted, tmp_path / "far", engine="ray")
        run_sweep(wanted, tmp_path / "near", workers=1)
        files = [(tmp_path / name / "rows.parquet").read_bytes() for name in ("far", "near")]
        assert files[0] == files[1]

        def stop(event):
            if event.done == 42:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_sweep(study(60, sleep=0.01), tmp_path / "far", engine="ray", progress=stop)
        assert ray.is_initialized()
        run_sweep(study(60, sleep=0.01), tmp_path / "far", engine="ray")
        assert read_rows(tmp_path / "far").to_pylist() == expected_rows(study(60, sleep=0.01))
    finally:
        ray.shutdown()
