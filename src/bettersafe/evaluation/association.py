"""Tests of whether a feature of the past is associated with what follows a decision, within strata of one state or pair.

If the state is enough, what follows row i depends on the past only through its stratum s(i), and a feature f of the past may be
shuffled among the rows of a stratum. With the target y of every row, and stratum means f̄ and ȳ,

    S = Σ_i (f_i − f̄_s)(y_i − ȳ_s)  has mean 0 and, under the shuffle, variance Σ_s Σ(f − f̄)² Σ(y − ȳ)² / (n_s − 1)

so no shuffles have to be drawn. Three things are added, because rows are not independent and logs are small:

    variance   the largest of the shuffle's, the sum of squared terms over rows, and over episodes. So a coincidence of a few
               rare rows, or one lucky episode, is never significant: |S|/√V ≤ √(number of terms that matter)
    bias       a feature can depend on earlier targets of its own stratum, which are part of ȳ_s (as in a regression on lagged
               values); this adds Σ_i f_i Σ_{j before i in the same episode and stratum} y_j / n_s, in centred values
    p-value    2 exp(−z²/2), the bound for a self-normalised sum of symmetric terms (Efron 1969); larger than the normal p-value
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from bettersafe.typing import Floats, Ints


ROUNDING = 1e-9
"""Differences from a stratum's mean below this share of the largest value are rounding, and count as 0."""

SHRINKAGE = 5.0
"""Rows that the mean of a stratum counts for when a group's mean is predicted."""


@dataclass(frozen=True, kw_only=True)
class Association:
    """A self-normalised sum.

    Attributes:
        total: S, corrected for its bias.
        error: √V.
    """

    total: float
    error: float

    @property
    def z(self) -> float:
        """S/√V; 0 if nothing varies."""
        return self.total / self.error if self.error > 0.0 else 0.0


def p_value(z: float, tests: int = 1) -> float:
    """Upper bound on the probability of |z| or more, multiplied by the number of tests."""
    return min(1.0, 2.0 * tests * math.exp(-0.5 * z * z))


class Groups:
    """Groups of rows, sorted once, for sums over the earlier rows of a group.

    Args:
        group: Group of every row, shape [N].
    """

    def __init__(self, group: Ints) -> None:
        self._order = np.argsort(group, kind="stable")
        key = group[self._order]
        first = np.append(True, key[1:] != key[:-1])[: key.size]
        self._number = np.cumsum(first) - 1
        self._first = np.flatnonzero(first)
        self.before = np.empty(key.size)
        """Number of earlier rows of the group, shape [N]."""
        self.before[self._order] = np.arange(key.size) - self._first[self._number]

    def earlier_sum(self, values: Floats) -> Floats:
        """Sum of the values of all earlier rows of the group, shape [N]."""
        own = values[self._order]
        sums = np.cumsum(own) - own
        result = np.empty_like(sums)
        result[self._order] = sums - sums[self._first][self._number]
        return result


@dataclass(frozen=True, kw_only=True)
class Strata:
    """Rows in strata, in the order of their episode and step.

    Attributes:
        of: Stratum of every row, shape [N].
        n: Number of strata.
        episode: Episode of every row, shape [N].
    """

    of: Ints
    n: int
    episode: Ints

    @cached_property
    def size(self) -> Ints:
        """Rows of every stratum; at least 1, for divisions."""
        return np.maximum(np.bincount(self.of, minlength=self.n), 1)

    @cached_property
    def by_episode(self) -> Groups:
        """Rows of the same stratum and episode."""
        return Groups(self.of * (int(self.episode.max(initial=0)) + 1) + self.episode)

    def sums(self, values: Floats) -> Floats:
        """Sum of the values [N] of every stratum."""
        return np.asarray(np.bincount(self.of, weights=values, minlength=self.n), dtype=np.float64)

    def centred(self, values: Floats) -> Floats:
        """Values [N] minus the mean of their stratum."""
        difference = values - (self.sums(values) / self.size)[self.of]
        difference[np.abs(difference) <= ROUNDING * np.max(np.abs(values), initial=0.0)] = 0.0
        return difference


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Terms of a sum S by row.

    Attributes:
        rows: Terms, shape [N].
        spread: Terms for the variance of S, shape [N]: larger, because centred values vary less than the values.
        bias: Correction of the bias of S, shape [N].
    """

    rows: Floats
    spread: Floats
    bias: Floats

    def __add__(self, other: Terms) -> Terms:
        return Terms(rows=self.rows + other.rows, spread=self.spread + other.spread, bias=self.bias + other.bias)


def linear_terms(feature: Floats, target: Floats, strata: Strata) -> Terms:
    """Terms (f − f̄)(y − ȳ) of S, for a feature f [N] of the past of every row and a target y [N]."""
    f, y, n = strata.centred(feature), strata.centred(target), strata.size
    products = f * y
    return Terms(
        rows=products,
        spread=products * np.sqrt(n / np.maximum(n - 1, 1))[strata.of],
        bias=f * strata.by_episode.earlier_sum(y) / n[strata.of],
    )


def fixed_terms(rows: Floats) -> Terms:
    """Terms that are not centred, because their mean is known to be 0."""
    return Terms(rows=rows, spread=rows, bias=np.zeros(rows.size))


def shuffle_variance(feature: Floats, target: Floats, strata: Strata) -> float:
    """Variance of S if the feature is shuffled within strata."""
    squares = strata.sums(strata.centred(feature) ** 2) * strata.sums(strata.centred(target) ** 2)
    return float(np.sum(squares / np.maximum(strata.size - 1, 1)))


def associate(terms: Terms, episode: Ints, *, least: float = 0.0) -> Association:
    """Sum of the terms with its error: from rows, from episodes or from ``least``, whichever variance is largest."""
    by_episode = np.bincount(episode, weights=terms.spread)
    variance = max(least, float(np.sum(terms.spread**2)), float(np.sum(by_episode**2)))
    return Association(total=float(terms.rows.sum() + terms.bias.sum()), error=math.sqrt(variance))


class Cells:
    """Groups of rows within strata, for example by the previous pair.

    Args:
        group: Group of every row, shape [N]; a group lies in one stratum.
        strata: The strata.
        across: Whether only rows of other episodes count as earlier rows of a group.
    """

    def __init__(self, group: Ints, strata: Strata, *, across: bool = False) -> None:
        self.strata = strata
        self.number: Ints = np.unique(group, return_inverse=True)[1].reshape(-1)
        """Number of the group of every row, shape [N], from 0."""
        self.episodes = int(strata.episode.max(initial=0)) + 1
        self._across = across
        self._groups, self._own = self._sorted(self.number)
        self.before = self._groups.before if self._own is None else self._groups.before - self._own.before
        """Number of earlier rows of the group, shape [N]."""

    def _sorted(self, group: Ints) -> tuple[Groups, Groups | None]:
        return Groups(group), Groups(group * self.episodes + self.strata.episode) if self._across else None

    def earlier_sum(self, values: Floats) -> Floats:
        """Sum of the values of the earlier rows of the group, shape [N]."""
        sums = self._groups.earlier_sum(values)
        return sums if self._own is None else sums - self._own.earlier_sum(values)

    def earlier_of_kind(self, kind: Ints, n_kinds: int) -> Floats:
        """Number of earlier rows of the group with the same kind, shape [N]."""
        groups, own = self._sorted(self.number * n_kinds + kind)
        return groups.before if own is None else groups.before - own.before


@dataclass(frozen=True, kw_only=True)
class GroupEffect:
    """Association of the groups of rows within strata with a target.

    Attributes:
        association: Test: does the mean of a group's earlier rows predict its later rows?
        size: Root mean square of the difference between a group's mean and its stratum's, corrected for chance; in the units of
            the target.
    """

    association: Association
    size: float


def group_effect(target: Floats, cells: Cells) -> GroupEffect:
    """Whether groups within strata have different means of the target y [N].

        f_i = Σ_{j before i, same group} (y_j − ȳ_s) / (m_i + 5),   m_i rows before i;   the terms of S are f_i (y_i − ȳ_s)

    All pairs of rows of a group enter once. A pair of centred rows has mean −σ²_s/n_s under the shuffle, which is added.
    """
    strata, before = cells.strata, cells.before
    y = strata.centred(target)
    variance = (strata.sums(y**2) / np.maximum(strata.size - 1, 1))[strata.of]
    sums, weight = cells.earlier_sum(y), 1.0 / (before + SHRINKAGE)
    products = sums * y + before * variance / strata.size[strata.of]
    least = float(np.sum((sums * weight) ** 2 * variance))
    return _group_effect(products, cells, least)


def group_effect_of_kinds(kind: Ints, cells: Cells) -> GroupEffect:
    """`group_effect` for a target that is one of several kinds (the next state, the action), as a vector of indicators.

    With p̂ the shares of the kinds in a stratum, the inner product of two centred rows is 1[o_i = o_j] − p̂(o_i) − p̂(o_j) + ‖p̂‖²,
    so only counts are needed. ``kind`` [N] starts from 0.
    """
    strata, before = cells.strata, cells.before
    _, place, count = np.unique(
        strata.of * (int(kind.max(initial=0)) + 1) + kind, return_inverse=True, return_counts=True
    )
    place = place.reshape(-1)
    share = count[place] / strata.size[strata.of]
    norm = strata.sums(share) / strata.size  # Σ_o p̂(o)², by stratum
    chance = (norm + (1.0 - norm) / np.maximum(strata.size - 1, 1))[strata.of]
    same = cells.earlier_of_kind(place, count.size)
    products = same - before * share - cells.earlier_sum(share) + before * chance
    return _group_effect(products, cells, 0.0)


def _group_effect(products: Floats, cells: Cells, least: float) -> GroupEffect:
    terms = fixed_terms(products / (cells.before + SHRINKAGE))
    mean = float(products.sum() / max(cells.before.sum(), 1.0))
    return GroupEffect(association=associate(terms, cells.strata.episode, least=least), size=math.sqrt(max(mean, 0.0)))
