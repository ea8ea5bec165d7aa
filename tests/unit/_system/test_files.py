"""What killed processes leave beside the files and folders they were writing, and who removes it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bettersafe._system.files import whole_file, whole_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="elsewhere one can't ask whether a process lives")
HOST = os.uname().nodename


@pytest.fixture
def dead():
    """The number of a process that is gone."""
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    return int(done.stdout)


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_what_the_dead_were_writing_goes_when_the_same_is_written_again(tmp_path, dead):
    kept = [
        f".a.parquet.{os.getppid()}@{HOST}.0123abcd.partial",  # it lives
        f".a.parquet.{dead}@{HOST}-2.0123abcd.partial",  # on another machine
        f".b.parquet.{dead}@{HOST}.0123abcd.partial",  # of another file
        ".a.parquet.mine.partial",
    ]
    for name in [*kept, f".a.parquet.{dead}@{HOST}.0123abcd.partial"]:
        (tmp_path / name).touch()
    with whole_file(tmp_path / "a.parquet") as partial:
        partial.write_text("whole")
    assert names(tmp_path) == sorted([*kept, "a.parquet"])


def test_half_a_folder_goes_and_one_that_was_put_aside_comes_back(tmp_path, dead):
    half = tmp_path / f".RUN.{dead}@{HOST}.0123abcd.partial"
    aside = tmp_path / f".RUN.{dead}@{HOST}.old.partial"
    for folder in (half, aside):
        folder.mkdir()
        (folder / "mark").write_text(folder.name)
    with pytest.raises(ValueError, match="no luck"), whole_folder(tmp_path / "RUN", mark="mark", force=True):
        raise ValueError("no luck")
    assert names(tmp_path) == ["RUN"]
    assert (tmp_path / "RUN" / "mark").read_text() == aside.name
    # where the new one did take its place, the old one goes
    aside.mkdir()
    with whole_folder(tmp_path / "RUN", mark="mark", force=True) as work:
        (work / "mark").write_text("new")
    assert names(tmp_path) == ["RUN"]
    assert (tmp_path / "RUN" / "mark").read_text() == "new"
