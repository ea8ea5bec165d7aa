"""Terms of off-policy estimators of J(π) per trajectory, from rows that may come in blocks.

For trajectory i with ρ_t = π(a_t|x_t)/π_b(a_t|x_t), ρ_{0:t} the running product and H_i its length:

    is       ρ_{0:H−1} Σ_t γ^t r_t
    pdis     Σ_t γ^t ρ_{0:t} r_t
    dr       V_0,  V_t = v̂(x_t) + ρ_t (r_t + γ V_{t+1} − q̂(x_t,a_t)),  V_H = v̂(x_H) if truncated, 0 if terminated
    wis      Σ_i ρ^i G_i / Σ_i ρ^i
    cwpdis   Σ_t γ^t Σ_i ρ^i_{0:t} r^i_t / Σ_i ρ^i_{0:t}
    wdr      Σ_t γ^t [ Σ_i w^i_t (r_t − q̂_t) + w^i_{t−1} v̂_t ],  w^i_t = ρ^i_{0:t} / Σ_j ρ^j_{0:t},  w_{−1} = 1/n
    model    v̂(μ): the estimated model alone, without trajectories

is, pdis and dr are means of independent terms, one per trajectory. The terms of the weighted estimators are not independent:
they are linearised (the estimate plus the influence of the trajectory), and only approximate bounds apply. Episodes that
ended keep their last weight in every normaliser. Weights are products, computed as sums of logarithms.

With a horizon H, J(π) = E Σ_{t<H} γ^t r_t: episodes are cut at step H, where they count as ended, and v̂ and q̂ are values with
H − t steps to go. If logging stopped earlier, or without a horizon before the end, dr and wdr fill in the rest by v̂(x_H); the
other estimators are of the logged steps only (``complete`` is False).

Estimators without weights along trajectories are in `marginal`.

Blocks contain whole trajectories and are read several times, so that only one is in memory. The kernel adds up trajectories one by
one, so the results don't depend on the blocks, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bettersafe import _kernel
from bettersafe.evaluation.facts import KERNEL_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from bettersafe.typing import Floats, Ints


PADDED_CELLS = 2_000_000
"""Cells (episodes × longest) that the NumPy engine pads at a time; limits its memory."""


@dataclass(frozen=True, kw_only=True)
class Trajectories:
    """Trajectories with the data of their rows.

    Attributes:
        ptr: Rows of trajectory i are ptr[i]:ptr[i+1], shape [n+1].
        log_ratio: ln ρ of every row, shape [N].
        rewards: Rewards, shape [N, d].
        v: v̂(x_t), shape [N, d]; empty without a model.
        q: q̂(x_t, a_t), shape [N, d]; empty without a model.
        tail: v̂ after the last row, shape [n, d]; 0 if terminated; empty without a model.
    """

    ptr: Ints
    log_ratio: Floats
    rewards: Floats
    v: Floats
    q: Floats
    tail: Floats

    @property
    def n(self) -> int:
        """Number of trajectories."""
        return int(self.ptr.size - 1)


def trajectory_terms(
    ptr: Ints, log_ratio: Floats, rewards: Floats, discount: Floats, v: Floats, q: Floats, tail: Floats
) -> tuple[Floats, Floats]:
    """Terms of E estimators, [E, n, d] by `kernel_row`, and log ρ_{0:H−1}, [n], for trajectories in memory.

    Args:
        ptr: Rows of trajectory i are ptr[i]:ptr[i+1], shape [n+1].
        log_ratio: ln ρ of every row, shape [N].
        rewards: Rewards, shape [N, d].
        discount: Discount factors, shape [d].
        v: v̂(x_t), shape [N, d]; empty without a model (then dr and wdr are 0).
        q: q̂(x_t, a_t), shape [N, d].
        tail: v̂ after the last row, shape [n, d].
    """
    whole = Trajectories(ptr=ptr, log_ratio=log_ratio, rewards=rewards, v=v, q=q, tail=tail)
    return terms_of_blocks(lambda: [whole], discount, has_model=v.size > 0)


def terms_of_blocks(
    blocks: Callable[[], Iterable[Trajectories]], discount: Floats, *, has_model: bool, weighted: bool = True
) -> tuple[Floats, Floats]:
    """Terms and log weights of `trajectory_terms`, for trajectories in blocks.

    Args:
        blocks: Function that returns all blocks, each time it is called.
        discount: Discount factors, shape [d].
        has_model: Whether the blocks have v, q and tail.
        weighted: Whether to compute the terms of normalised estimators.
    """
    gamma = np.ascontiguousarray(discount, dtype=np.float64)
    if _kernel.compiled is None:
        return _numpy_terms(blocks, gamma, has_model=has_model)
    estimates = _kernel.compiled.Estimates(gamma, has_model)
    log_weights = []
    for block in blocks():
        own = np.empty(block.n)
        estimates.weigh(_whole_numbers(block.ptr), _doubles(block.log_ratio), own)
        log_weights.append(own)
    log_weight = np.concatenate(log_weights)
    terms = np.empty((KERNEL_ROWS, log_weight.size, gamma.size))
    for step in (estimates.average, estimates.finish) if weighted else (estimates.average,):
        first = 0
        for block in blocks():
            rows = (_doubles(a) for a in (block.log_ratio, block.rewards, block.v, block.q, block.tail))
            step(first, _whole_numbers(block.ptr), *rows, terms)
            first += block.n
    return terms, log_weight


def _doubles(array: Floats) -> Floats:
    return np.ascontiguousarray(array, dtype=np.float64)


def _whole_numbers(array: Ints) -> Ints:
    return np.ascontiguousarray(array, dtype=np.int64)


def _numpy_terms(
    blocks: Callable[[], Iterable[Trajectories]], discount: Floats, *, has_model: bool
) -> tuple[Floats, Floats]:
    """`terms_of_blocks` in NumPy, on trajectories padded to the longest: the last weight is repeated, the rest is 0.

    The first pass finds the largest weight of every step, the second adds up weights and weighted terms, the last computes the
    terms.
    """
    lengths = np.concatenate([np.diff(block.ptr) for block in blocks()])
    n, d, longest = lengths.size, discount.size, int(lengths.max())
    power = discount[:, None] ** np.arange(longest + 1)  # [d, T+1]

    def pieces() -> Iterator[tuple[slice, _Padded]]:
        """Slices of trajectories and their padded rows, a few at a time."""
        first = 0
        for block in blocks():
            for start in range(0, block.n, max(1, PADDED_CELLS // (longest + 1))):
                stop = min(start + max(1, PADDED_CELLS // (longest + 1)), block.n)
                yield slice(first + start, first + stop), _Padded(block, slice(start, stop), longest, has_model)
            first += block.n

    top = np.full(longest + 1, -np.inf)
    for _, piece in pieces():
        top = np.maximum(top, piece.log_weights().max(axis=0))
    shift = np.where(np.isfinite(top), top, 0.0)
    total = np.zeros(longest + 1)
    plain_sum, reward_sum, residual_sum, value_sum = np.zeros(d), *(np.zeros((d, longest + 1)) for _ in range(3))
    for _, piece in pieces():
        relative = np.exp(piece.log_weights() - shift)
        total += relative.sum(axis=0)
        before = np.hstack([np.zeros((relative.shape[0], 1)), relative[:, :-1]])  # w_{t−1}; w_{−1} = 1/n is set below
        for k in range(d):
            r, residual, values = piece.parts(k)
            plain_sum[k] += relative[:, -1] @ (r @ power[k])
            reward_sum[k] += (relative * r).sum(axis=0)
            residual_sum[k] += (relative * residual).sum(axis=0)
            value_sum[k] += (before * values).sum(axis=0)
            value_sum[k, 0] += values[:, 0].sum()
    inverse = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0.0)
    inverse_before = np.append(1.0 / n, inverse[:-1])
    plain_mean, reward_mean, residual_mean = plain_sum * inverse[-1], reward_sum * inverse, residual_sum * inverse
    value_mean = value_sum * inverse_before

    terms, final = np.zeros((KERNEL_ROWS, n, d)), np.empty(n)
    for place, piece in pieces():
        logs = piece.log_weights()
        final[place] = logs[:, -1]
        weight = np.exp(logs)
        share = np.exp(logs - shift) * inverse  # w_t, sums to 1 over episodes
        first = np.ones((weight.shape[0], 1))
        weight_before = np.hstack([first, weight[:, :-1]])
        share_before = np.hstack([first / n, share[:, :-1]])
        for k in range(d):
            r, residual, values = piece.parts(k)
            plain = r @ power[k]
            terms[0, place, k] = weight[:, -1] * plain
            terms[1, place, k] = (weight * r) @ power[k]
            terms[2, place, k] = plain_mean[k] + n * share[:, -1] * (plain - plain_mean[k])
            terms[3, place, k] = power[k] @ reward_mean[k] + n * (share * (r - reward_mean[k])) @ power[k]
            if has_model:
                terms[4, place, k] = (weight * residual + weight_before * values) @ power[k]
                influence = share * (residual - residual_mean[k]) + share_before * (values - value_mean[k])
                terms[5, place, k] = power[k] @ (residual_mean[k] + value_mean[k]) + n * influence @ power[k]
    return terms, final


@dataclass(frozen=True)
class _Padded:
    """Trajectories ``which`` of a block as tables [n, T+1], 0 after the end."""

    block: Trajectories
    which: slice
    longest: int
    has_model: bool

    def log_weights(self) -> Floats:
        """Ln ρ_{0:t}; the last weight is repeated after the end."""
        return np.asarray(np.cumsum(self._table(self.block.log_ratio), axis=1))

    def parts(self, k: int) -> tuple[Floats, Floats, Floats]:
        """Rewards, residuals r − q̂ and values v̂ (with the tail of truncated episodes)."""
        block = self.block
        r = self._table(block.rewards[:, k])
        if not self.has_model:
            return r, np.zeros_like(r), np.zeros_like(r)
        values = self._table(block.v[:, k])
        values[np.arange(values.shape[0]), self._lengths()] += block.tail[self.which, k]
        return r, self._table(block.rewards[:, k] - block.q[:, k]), values

    def _lengths(self) -> Ints:
        return np.asarray(np.diff(self.block.ptr)[self.which])

    def _table(self, values: Floats) -> Floats:
        alive = np.arange(self.longest + 1) < self._lengths()[:, None]
        table = np.zeros(alive.shape)
        table[alive] = values[self.block.ptr[self.which.start] : self.block.ptr[self.which.stop]]
        return table
