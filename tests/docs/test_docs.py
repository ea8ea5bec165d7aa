"""The documentation: its code runs, its site builds without a broken link, and no public name is missing from it."""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import public
from bettersafe.cli.main import app
from bettersafe.studies.catalogue import CATALOGUE
from patience import TIMEOUT
from places import ROOT
from quick import rest_slow

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TRUE_TO_THE_LETTER = {
    "README.md",
    "tutorial.md",
    "your-own-log.md",
}  # what they show is what is printed; on the other pages commands run on less data
LONG = {"environments", "your-own-log"}  # seconds each; they run with the slow tests
LANGUAGES = {"python", "bash", "toml", "text", ""}  # text and none: what a command prints


def blocks(text):
    """(language, code, mark) of every code block; indented ones are shell. A mark is an HTML comment on the line above it."""
    lines = [*text.splitlines(), ""]
    at, mark, blank = 0, "", True
    while at < len(lines):
        line, first = lines[at], at
        if line.startswith("```"):
            at = lines.index("```", at + 1) + 1
            yield line.removeprefix("```"), "\n".join([*lines[first + 1 : at - 1], ""]), mark
        elif line.startswith("    ") and blank:
            while lines[at].startswith("    "):
                at += 1
            yield "bash", "\n".join([*(each[4:] for each in lines[first:at]), ""]), mark
        else:
            at += 1
            comment = re.fullmatch(r"<!-- (.*) -->", line)
            mark = comment[1] if comment else mark if not line.strip() else ""
            blank = not line.strip() or bool(comment)
            continue
        mark, blank = "", False


def shell_lines(code):
    """The words of every command; lines that end in a backslash go on, what follows a # is a remark."""
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


def to_run():
    """Pages with something to run."""
    for page in PAGES:
        found = [b for b in blocks(page.read_text(encoding="utf-8")) if not b[2].startswith("not run:")]
        if any(
            b[0] == "python" or (b[0] == "bash" and re.search(r"^(bettersafe|python) ", b[1], re.MULTILINE))
            for b in found
        ):
            yield page


def log_columns(n, seed, **names):
    """A log of n episodes of two rows with rewards survival and pain; ``names`` rename columns."""
    rng = np.random.default_rng(seed)
    treat = rng.integers(0, 2, 2 * n)
    columns = {
        "episode": np.repeat(np.arange(n), 2), "step": np.tile([0, 1], n),
        "state": np.where(np.arange(2 * n) % 2 == 0, "stable", rng.choice(["worse", "stable"], 2 * n)),
        "action": np.where(treat, "treat", "wait"), "survival": (rng.random(2 * n) < 0.3 + 0.4 * treat).astype(int),
        "pain": rng.integers(2, 6, 2 * n) - treat,
    }  # fmt: skip
    return {names.get(name, name): value for name, value in columns.items()}


def write_csv(path, columns):
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with the files that the pages speak of; the examples as they are in the repository."""
    monkeypatch.chdir(tmp_path)
    write_csv(Path("visits.csv"), log_columns(2000, 0))
    write_csv(Path("later.csv"), log_columns(2000, 1))
    Path("visits").mkdir()
    numbered = log_columns(200, 2, episode="stay", step="block", state="cluster", action="dose")
    numbered["dose"] = np.where(numbered["dose"] == "treat", 1, 0)
    parquet.write_table(pa.table(numbered), "visits/one.parquet")
    for name, seed in (("vitals.csv", 3), ("new.csv", 4)):
        rng = np.random.default_rng(seed)
        log = log_columns(3000, seed, episode="stay", step="block", action="dose")
        del log["state"]
        write_csv(
            Path(name), {**log, "rate": rng.normal(80, 9, 6000).round(1), "lactate": rng.exponential(2, 6000).round(3)}
        )
    Path("examples").symlink_to(ROOT / "examples")
    monkeypatch.setattr("webbrowser.open", lambda url: True)
    return tmp_path


def command(words, page):
    """Run one command of a page as a user would, but in this process, and with fewer patients or states."""
    if words[0] == "python":
        argv, sys.argv = sys.argv, words[1:]
        try:
            runpy.run_path(words[1], run_name="__main__")
        finally:
            sys.argv = argv
    elif words[0] == "bettersafe":
        few = words[1] == "demo" and page.name not in TRUE_TO_THE_LETTER
        smaller = ["--patients", "1500"] if few else ["--k", "4", "--quick"] if "--k" in words else []
        done = CliRunner().invoke(app, [*words[1:], *smaller])
        assert done.exit_code in (0, 3), f"{page.name}: {shlex.join(words)}\n{done.output}\n{done.exception}"
        assert done.stdout
        return done.stdout
    elif words == ["make", "demo"]:
        return command(["bettersafe", "demo"], page)
    else:
        assert words[0] in ("pip", "make"), f"{page.name}: can't try {shlex.join(words)}"
    return ""


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "page", rest_slow(to_run(), *(page for page in to_run() if page.stem not in LONG)), ids=lambda page: page.stem
)
def test_code_on_the_page_runs(page, desk):
    if page.name in ("report.md",):  # speaks of a run that is there
        command(
            shlex.split("bettersafe improve visits.csv --objective survival --objective pain --epsilon 1 -o RUN"), page
        )
    names, said, ran, compared = {}, "", True, 0
    for language, code, mark in blocks(page.read_text(encoding="utf-8")):
        if mark.startswith("not run:"):
            assert mark.removeprefix("not run:").strip(), f"{page.name}: say why it is not run"
            ran = False
        elif mark.startswith("file:"):
            Path(mark.removeprefix("file:").strip()).write_text(code, encoding="utf-8")
        elif language == "python":
            exec(compile(code, page.name, "exec"), names)
        elif language == "bash":
            ran = True
            for words in shell_lines(code):
                said += command(words, page)
        elif language in ("text", "") and page.name in TRUE_TO_THE_LETTER and ran:
            if Path("ward.csv").exists():
                said += Path("ward.csv").read_text(encoding="utf-8")
            printed = {" ".join(line.split()) for line in said.splitlines()}
            compared += 1
            for line in code.splitlines():
                if line.strip(" ─"):
                    assert " ".join(line.split()) in printed, f"{page.name} shows what is not printed: {line}"
    assert compared or page.name not in TRUE_TO_THE_LETTER, f"{page.name} shows nothing that is printed"


def test_blocks_are_found():
    """The test above would also pass if it saw none."""
    text = "A\n\n    bettersafe a \\\n        --b  # c\n    make x\n\n<!-- not run: why -->\n```bash\nbettersafe d\n```\n\n```python\ne\n```\n"
    assert [(language, mark) for language, _, mark in blocks(text)] == [
        ("bash", ""),
        ("bash", "not run: why"),
        ("python", ""),
    ]
    assert list(shell_lines(next(blocks(text))[1])) == [["bettersafe", "a", "--b"], ["make", "x"]]
    pages = {page.stem for page in to_run()}
    assert {"README", "tutorial", "your-own-log", "discretize", "environments", "report", "task-file"} <= pages
    for page in PAGES:
        for language, _, _ in blocks(page.read_text(encoding="utf-8")):
            assert language in LANGUAGES, f"{page.name}: {language}"


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


@pytest.mark.filterwarnings("default")
def test_examples_run(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    hospital = runpy.run_path(str(ROOT / "examples" / "hospital_log.py"))
    hospital["main"](tmp_path)
    assert "Tested, passed: " in capsys.readouterr().out
    found = runpy.run_path(str(ROOT / "examples" / "many_objectives.py"))["main"](episodes=200)
    assert found["b-opt"][0] > found["s-opt"][0] > 0.0
    assert found["b-opt"][1] <= 1e-6
    before, after = runpy.run_path(str(ROOT / "examples" / "gymnasium_log.py"))["main"](episodes=600)
    assert after > before


def test_every_public_name_is_in_the_reference():
    listed = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(f"{module}.{name}" for name, module in public.homes().items())


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="needs the extra 'docs'")
def test_the_site_builds_and_asks_nobody_for_anything(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=TIMEOUT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "site" / "api.html").read_text(encoding="utf-8")
    for name, module in public.homes().items():
        assert f'id="{module}.{name}"' in reference, name
    for page in (tmp_path / "site").rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=[\"']?(?:https?:)?//", text), page


def paper_rows():
    """Cells (item, where, test, status) of the tables of docs/paper.md."""
    text = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8").replace("\\|", "¦")
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 4 and cells[0] != "item" and not cells[1].startswith("best"):
            yield cells


def test_what_the_page_of_the_paper_names_is_there():
    """Every function, option, command and test on docs/paper.md exists, and every item has a status."""
    import typer

    commands = {name: each.params for name, each in commands_of(typer.main.get_command(app))}
    rows = [
        cells
        for cells in paper_rows()
        if not cells[0].startswith(("published", "paper", "paired", "sequential", "rule"))
    ]
    assert len(rows) > 80
    for item, where, test, status in rows:
        assert status.startswith(("works", "differs", "not done")), item
        assert status.startswith("not done") or where != "–" or test != "–" or "[" in status, item
        for name in re.findall(r"`(bettersafe\.[\w.]+)`", f"{where} {status}"):
            found = importlib.import_module("bettersafe")
            for part in name.split(".")[1:]:
                found = getattr(found, part, None) or importlib.import_module(f"{found.__name__}.{part}")
        for words in re.findall(r"`bettersafe ([a-z][^`]*)`", f"{where} {status}"):
            parts = words.split()
            known = next(name for name in (" ".join(parts[:2]), parts[0]) if name in commands)
            if known == "study run" and len(parts) > 2:
                assert parts[2] in CATALOGUE
        options = {flag for params in commands.values() for each in params for flag in getattr(each, "opts", ())}
        for flag in re.findall(r"(--[a-z][a-z-]+)", f"{where} {status}"):
            assert flag in options, (item, flag)
        for path, name in re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", test):
            code = (ROOT / "tests" / path).read_text(encoding="utf-8")
            assert not name or f"def {name}(" in code, (path, name)


def commands_of(command, before=""):
    """(name, command) of every command below ``command``: "study run"."""
    for name, each in getattr(command, "commands", {}).items():
        full = f"{before} {name}".strip()
        yield from commands_of(each, full) if hasattr(each, "commands") else [(full, each)]
