"""What a method returns: arrays that can't be changed, and one sentence."""

from __future__ import annotations

import pytest

from bettersafe.methods.result import Improvement, three_digits


def improvement(**more):
    """Of one state of two that changes."""
    given = {
        "method": "s-opt", "policy": [[0.2, 0.8], [0.5, 0.5]], "baseline": [[0.5, 0.5], [0.5, 0.5]], "preference": [1.0, 0.0],
        "epsilon": 0.1, "baseline_return": [1.0, 2.0], "policy_return": [1.5, 2.0], "baseline_v": [[1.0, 1.0], [2.0, 2.0]],
        "rounds": 3, "converged": True, "gap": 0.0, "kept": [], "distance": [0.6, 0.0], "budget_used": [0.05, 0.0], "engine": "native",
    }  # fmt: skip
    return Improvement(**{**given, **more})


def test_arrays_are_read_only():
    found = improvement()
    assert found.changed.tolist() == [0]
    for array in (found.policy, found.baseline_v, found.kept):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "The policy changes 1 of 2 states and raises the preferred return by 0.5 in the estimated model."),
        ({"converged": False, "kept": [1]}, "The search stopped before it converged. 1 states could not be solved"),
        ({"distance": [0.0, 0.0], "epsilon": 0.0}, "The baseline is returned: epsilon is 0."),
        ({"distance": [0.0, 0.0]}, "no policy within the constraints improves the preferred return"),
        ({"distance": [0.0, 0.0], "reason": "no candidate passed"}, "The baseline is returned: no candidate passed."),
        ({"distance": [0.0, 0.0], "preference": [0.0, 0.0]}, "the preference is zero on every objective"),
    ],
)
def test_the_status_is_a_sentence(more, said):
    assert said in improvement(**more).status


@pytest.mark.parametrize(
    ("value", "text"), [(1.7043, "1.7"), (-0.012345, "-0.0123"), (99.96, "100"), (12345.6, "12,346"), (0.0, "0")]
)
def test_sentences_have_three_digits(value, text):
    assert three_digits(value) == text
