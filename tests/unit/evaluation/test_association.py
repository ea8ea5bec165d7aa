"""Sums within strata, against loops and against all shuffles of a small log."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bettersafe.evaluation.association import (
    SHRINKAGE,
    Cells,
    Groups,
    Strata,
    associate,
    fixed_terms,
    group_effect,
    group_effect_of_kinds,
    linear_terms,
    p_value,
    shuffle_variance,
)


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    n = 60
    episode = np.sort(rng.integers(0, 8, n))
    stratum = rng.integers(0, 3, n)
    return {
        "strata": Strata(of=stratum, n=4, episode=episode),
        "group": stratum * 5 + rng.integers(0, 3, n),
        "feature": rng.normal(size=n),
        "target": rng.normal(size=n),
        "kind": rng.integers(0, 4, n),
    }


def test_sums_of_earlier_rows(rows):
    group, values = rows["group"], rows["target"]
    expected = [sum(values[j] for j in range(i) if group[j] == group[i]) for i in range(group.size)]
    np.testing.assert_allclose(Groups(group).earlier_sum(values), expected, atol=1e-12)
    np.testing.assert_array_equal(Groups(group).before, [np.sum(group[:i] == group[i]) for i in range(group.size)])


def test_no_rows_are_no_groups():
    empty = np.zeros(0, dtype=np.int64)
    assert Groups(empty).earlier_sum(np.zeros(0)).size == 0
    strata = Strata(of=empty, n=2, episode=empty)
    assert associate(linear_terms(np.zeros(0), np.zeros(0), strata), empty).z == 0.0


def test_the_variance_of_the_shuffle_is_that_of_all_shuffles():
    f, y = np.array([1.0, 2.0, 4.0, 0.5, 3.0]), np.array([0.3, -1.0, 2.0, 5.0, 1.0])
    strata = Strata(of=np.array([0, 0, 0, 1, 1]), n=2, episode=np.arange(5))
    sums = []
    for first in itertools.permutations(range(3)):
        for last in itertools.permutations((3, 4)):
            shuffled = f[[*first, *last]]
            sums.append(float(np.sum(strata.centred(shuffled) * strata.centred(y))))
    assert np.mean(sums) == pytest.approx(0.0, abs=1e-12)
    assert shuffle_variance(f, y, strata) == pytest.approx(np.mean(np.square(sums)))


def test_linear_terms_are_centred_products_with_the_bias_of_lagged_features(rows):
    strata, f, y = rows["strata"], rows["feature"], rows["target"]
    terms = linear_terms(f, y, strata)
    fc, yc, n = strata.centred(f), strata.centred(y), strata.size
    np.testing.assert_allclose(terms.rows, fc * yc)
    for i in range(f.size):
        own = [j for j in range(i) if strata.of[j] == strata.of[i] and strata.episode[j] == strata.episode[i]]
        assert terms.bias[i] == pytest.approx(fc[i] * yc[own].sum() / n[strata.of[i]])


def test_rounding_is_not_a_difference():
    strata = Strata(of=np.zeros(6, dtype=np.int64), n=1, episode=np.arange(6))
    nearly = 1e6 * (1.0 + 1e-15 * np.arange(6))
    assert not np.any(strata.centred(nearly))
    assert associate(linear_terms(np.arange(6.0), nearly, strata), strata.episode).z == 0.0


def test_the_error_is_the_largest_of_rows_episodes_and_shuffle():
    episode = np.array([0, 0, 1])
    terms = fixed_terms(np.array([1.0, 1.0, -1.0]))
    assert associate(terms, episode).error == pytest.approx(np.sqrt(2.0**2 + 1.0))
    assert associate(fixed_terms(np.array([1.0, -1.0, 1.0])), episode).error == pytest.approx(np.sqrt(3.0))
    assert associate(terms, episode, least=9.0).error == pytest.approx(3.0)
    assert (terms := associate(terms, episode)).z == pytest.approx(terms.total / terms.error)


@pytest.mark.parametrize("across", [False, True])
def test_groups_predict_their_later_rows(rows, across):
    strata, group, y = rows["strata"], rows["group"], rows["strata"].centred(rows["target"])
    found = group_effect(rows["target"], Cells(group, strata, across=across))
    total = pairs = weighted = 0.0
    for i in range(y.size):
        own = [j for j in range(i) if group[j] == group[i] and not (across and strata.episode[j] == strata.episode[i])]
        inside = strata.of == strata.of[i]
        variance = np.sum(y[inside] ** 2) / (inside.sum() - 1)
        product = y[i] * y[own].sum() + len(own) * variance / inside.sum()
        total, pairs = total + product, pairs + len(own)
        weighted += product / (len(own) + SHRINKAGE)
    assert found.association.total == pytest.approx(weighted)
    assert found.size == pytest.approx(np.sqrt(max(total / pairs, 0.0)))


@pytest.mark.parametrize("across", [False, True])
def test_kinds_are_vectors_of_indicators(rows, across):
    strata, group, kind = rows["strata"], rows["group"], rows["kind"]
    vectors = np.eye(4)[kind]
    for s in range(strata.n):
        if np.any(strata.of == s):
            vectors[strata.of == s] -= vectors[strata.of == s].mean(axis=0)
    weighted = 0.0
    for i in range(kind.size):
        own = [j for j in range(i) if group[j] == group[i] and not (across and strata.episode[j] == strata.episode[i])]
        n = int(strata.size[strata.of[i]])
        # mean of a pair of different rows of the stratum
        chance = -np.sum(vectors[strata.of == strata.of[i]] ** 2) / (n * (n - 1))
        weighted += sum(vectors[i] @ vectors[j] - chance for j in own) / (len(own) + SHRINKAGE)
    found = group_effect_of_kinds(kind, Cells(group, strata, across=across))
    assert found.association.total == pytest.approx(weighted)


def test_p_values_are_bounds_and_add_up():
    assert p_value(0.0) == 1.0
    assert p_value(4.0) == pytest.approx(2.0 * np.exp(-8.0))
    assert p_value(-4.0, 5) == pytest.approx(5 * p_value(4.0))
