from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bettersafe.logs._reader import exact
from bettersafe.logs._reader.exact import sum_parts, sum_runs

ANY = st.floats(min_value=-1e100, max_value=1e100, allow_nan=False)


def whole(values) -> Fraction:
    return sum((Fraction(value) for value in np.asarray(values).tolist()), Fraction(0))


@settings(max_examples=60)
@given(runs=st.lists(st.lists(ANY, min_size=1, max_size=12), min_size=1, max_size=4), data=st.data())
def test_layers_add_up_to_the_sum_whatever_the_order(runs, data) -> None:
    terms = np.array([term for run in runs for term in run])
    starts = np.cumsum([0, *(len(run) for run in runs[:-1])])
    layers = sum_runs(terms, starts)
    for i, run in enumerate(runs):
        total = whole(run)
        assert whole(layers[:, i]) == total
        assert abs(Fraction(layers[0, i]) - total) <= Fraction(math.ulp(layers[0, i]))
    assert len(layers) == 1 or np.any(layers[-1])
    shuffled = np.array([term for run in runs for term in data.draw(st.permutations(run))])
    np.testing.assert_array_equal(sum_runs(shuffled, starts), layers)
    # of sums of two parts of every run, the sum is the same to the last bit
    cuts = [data.draw(st.integers(0, len(run))) for run in runs]
    parts = [sum_runs(np.array([*(run[:cut] or [0.0])]), np.array([0])) for run, cut in zip(runs, cuts, strict=True)]
    others = [sum_runs(np.array([*(run[cut:] or [0.0])]), np.array([0])) for run, cut in zip(runs, cuts, strict=True)]
    for i in range(len(runs)):
        again = sum_parts(np.concatenate([parts[i], others[i]]))[:, 0]
        padded = np.pad(again, (0, max(len(layers) - again.size, 0)))
        np.testing.assert_array_equal(padded, layers[:, i])


def test_what_one_double_can_hold_has_one_layer() -> None:
    assert sum_runs(np.array([0.5, 1e6, -3.0, 0.0]), np.array([0, 3])).tolist() == [[999997.5, 0.0]]
    assert sum_runs(np.zeros(0), np.zeros(0, dtype=np.int64)).shape == (1, 0)


def test_a_small_term_beside_large_ones_is_kept() -> None:
    assert sum_runs(np.array([1e100, 1e-100, -1e100]), np.array([0])).tolist() == [[1e-100]]
    assert sum_runs(np.array([1e100, 1e-100]), np.array([0])).tolist() == [[1e100], [1e-100]]


def test_runs_summed_in_blocks_are_the_same(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    starts = np.concatenate([[0], np.sort(rng.choice(np.arange(1, 400), 49, replace=False))])
    terms = rng.normal(size=400) * 10.0 ** rng.integers(-40, 40, 400)
    terms[: starts[20]] = 1.0  # blocks that need one layer beside others that need more
    at_once = sum_runs(terms, starts)
    monkeypatch.setattr(exact, "BLOCK", 7)
    in_blocks = sum_runs(terms, starts)
    assert len(at_once) > 1
    assert in_blocks.tobytes() == at_once.tobytes()
