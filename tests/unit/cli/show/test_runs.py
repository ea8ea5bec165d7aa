"""Runs on the terminal."""

from __future__ import annotations

import re

from bettersafe.cli.show import print_run
from toy_runs import many_run


def test_the_terminal_shows_of_many_objectives_those_that_decide(capsys):
    run = many_run()
    print_run(run, 3)
    said = capsys.readouterr().out
    assert "the 12 of 17 objectives" in said
    assert "0.910 o5" in said
    assert "o16" not in said
    print_run(run, 3, every=True)
    said = capsys.readouterr().out
    assert "--all" not in said
    assert len(re.findall(r"^ o\d+ ", said, re.MULTILINE)) == 2 * 17
