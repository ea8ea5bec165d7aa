"""Where a cell is, in the words of the file that it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bettersafe.logs.dataset import Columns
from logs import complaint, small_log, write

if TYPE_CHECKING:
    from pathlib import Path


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
