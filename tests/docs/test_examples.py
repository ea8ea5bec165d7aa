"""Every public function and every class at the top has an example in its docstring, and what it shows is true."""

from __future__ import annotations

import dataclasses
import doctest
import inspect
import os
import re
import shutil

import pytest

import bettersafe
import public
from places import ROOT

EXPECTED = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL

AGAIN = {"read_rows", "read_description", "write_figures"}  # each runs the sweep of `run_sweep` again


def examples():
    """Public names whose docstrings have examples, or should."""
    for name in public.homes():
        thing = public.load(name)
        told = inspect.getdoc(thing) or ""
        needed = inspect.isfunction(thing) or (inspect.isclass(thing) and name in bettersafe.__all__)
        if needed or (callable(thing) and ">>>" in told):
            yield pytest.param(name, told, id=name, marks=pytest.mark.slow if name in AGAIN else ())


@pytest.fixture(scope="module")
def beginning(tmp_path_factory):
    """The names and files that all examples begin with: the lines of docs/api.md."""
    folder, names, before = tmp_path_factory.mktemp("examples"), {}, os.getcwd()
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    os.chdir(folder)
    try:
        for code in re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
            exec(compile(code, "api.md", "exec"), names)
    finally:
        os.chdir(before)
    return folder, names


@pytest.mark.parametrize(("name", "told"), list(examples()))
def test_the_example_is_true(name, told, beginning, tmp_path, monkeypatch):
    folder, names = beginning
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    run = dataclasses.replace(names["run"])  # another example may have tested it
    test = doctest.DocTestParser().get_doctest(told, {**names, "run": run}, name, public.homes()[name], 0)
    assert test.examples, f"{name} needs an example"
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=EXPECTED)
    runner.run(test, out=said.append)
    assert not runner.failures, "".join(said)
