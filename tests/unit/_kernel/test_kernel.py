"""The boundary of the C++ kernel: a bad call raises with a sentence that names the argument, and never ends the interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from bettersafe import Dataset, Objective, _kernel, count
from bettersafe.errors import ParameterError
from bettersafe.posterior import outcomes_of
from patience import TIMEOUT
from places import ROOT

pytestmark = pytest.mark.skipif(_kernel.compiled is None, reason="the kernel is not built")

CALLS = ROOT / "tests" / "kernel_calls.py"


def run(*arguments):
    """What a task of kernel_calls.py prints; it has a process of its own, which may crash or hang."""
    ended = subprocess.run(
        [sys.executable, str(CALLS), *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert ended.returncode == 0, f"exit code {ended.returncode}: {ended.stderr[-2000:]}"
    return json.loads(ended.stdout)


def test_good_calls_are_accepted():
    from kernel_calls import FUNCTIONS, good_call

    for function in FUNCTIONS:
        for index in (np.int32, np.int64):
            call, arguments = good_call(function, index)
            call(**arguments)


def test_every_function_is_called():
    from kernel_calls import FUNCTIONS, K

    named = {function.split(".")[0] for function in FUNCTIONS}
    assert named == {name for name in dir(K) if not name.startswith("_")}


def test_a_bad_call_says_which_argument_is_wrong():
    from kernel_calls import ACCEPTED, good_call

    found = run("bad calls")
    assert len(found) > 2000
    names = {function: set(good_call(function)[1]) for function, *_ in found}
    for function, name, label, error in found:
        what = f"{function}({name}: {label}) gave {error}"
        if (function, name, label) in ACCEPTED:
            assert error is None, what
            continue
        assert error is not None, what
        kind, text = error
        assert kind in ("TypeError", "ValueError"), what
        assert text.endswith("."), what
        if label in ("None", "list", "text", "dtype", "byte order", "strided", "read-only", "unaligned"):
            assert text.startswith(name), what
        else:  # one array is too short for another: either may be named
            assert any(other in text for other in names[function]), what


@pytest.mark.parametrize("seed", range(3))
def test_random_calls_do_no_harm(seed):
    raised = run("fuzz", seed, 3000)
    assert set(raised) <= {"nothing", "TypeError", "ValueError"}, raised
    assert raised["nothing"] > 100
    assert raised["ValueError"] > 100


def test_methods_out_of_turn():
    for what, error in run("out of turn").items():
        assert error is not None, what
        assert error[0] == "ValueError", (what, error)


def test_a_counter_that_refused_rows_stays_shut():
    first, bad, again, closed, written = run("after refusal")
    assert (first, bad, again, closed) == (True, False, False, False)
    assert written == ["ValueError", "close() must come first, and be True."]


def test_an_object_in_use_is_refused_to_other_threads():
    assert set(run("many threads")) <= {"nothing", "RuntimeError"}


def test_any_basis_to_start_from_is_good_or_ignored():
    assert run("odd bases") < 1e-9


def test_models_refuse_indices_outside():
    for what, (kind, text) in run("models").items():
        assert kind == "ParameterError", (what, kind, text)
        assert "transition" in text, (what, text)


@pytest.mark.parametrize("value", [2**30, -5])
def test_counts_and_outcomes_refuse_indices_outside(value):
    counts = count(
        Dataset(
            states=[0, 1, 0], actions=[0, 1, 1], rewards=np.ones((3, 1)), next_states=[1, -1, 1],
            terminated=[False, True, False], episode_ptr=[0, 2, 3], state_labels=["a", "b"], action_labels=["u", "v"],
            episode_labels=[0, 1], objectives=(Objective(name="r"),),
        )
    )  # fmt: skip
    for name in ("pair_state", "pair_action", "outcome_state", "outcome_ptr"):
        wrong = np.array(getattr(counts, name))
        wrong[-1] = value
        with pytest.raises(ParameterError, match=name):
            replace(counts, **{name: wrong})
    outcomes = outcomes_of(counts)
    for name in ("pair_state", "outcome_next", "count_outcome", "state_ptr", "outcome_ptr", "count_ptr"):
        wrong = np.array(getattr(outcomes, name))
        wrong[-1] = value
        with pytest.raises(ParameterError, match=name):
            replace(outcomes, **{name: wrong})
