"""The command line's words for what the library says."""

from __future__ import annotations

import pytest

from bettersafe.cli import main
from bettersafe.errors import DataError, ParameterError, RunError
from bettersafe.studies.sepsis import mimic
from public import homes


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ParameterError("epsilon must be 0 or more.", setting="epsilon"), "epsilon must be 0 or more. (--epsilon)"),
        (ParameterError("hold more out with `hold_out`.", setting="hold_out"), "hold more out with --hold-out."),
        (DataError("Name one with `objectives`."), "Name one with --objective."),
        (DataError("Name it with `baseline_prob`."), "Name it with --baseline-prob."),
        (DataError("leave out `features` and `train_share`."), "leave out --feature and --train-share."),
        (RunError("replace it with `force`."), "replace it with --force."),
        (RunError("Make one with `certify_run`."), "Make one with `bettersafe certify`."),
        (DataError("column `my_column` is empty."), "column `my_column` is empty."),
        (ParameterError("data must be a path.", setting="data"), "data must be a path. (DATA)"),
    ],
)
def test_settings_become_options_and_functions_commands(error, words):
    assert main._in_options(error) == words


def test_commands_stand_for_functions_that_there_are():
    for function, command in main.COMMANDS.items():
        assert function in homes() or hasattr(mimic, function), function
        assert command.startswith("bettersafe ")
