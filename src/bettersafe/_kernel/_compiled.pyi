"""Signatures of the C++ kernel, documented in `programs.hpp`, `mixtures.hpp`, `values.hpp`, `responses.hpp`, `mean_process.hpp`, `draws.hpp`, `estimators.hpp` and `counting.hpp`.

Arrays are contiguous; output arrays share no memory with others.
"""

import numpy as np
import numpy.typing as npt

def solve_programs(
    ptr: npt.NDArray[np.int64],
    baseline: npt.NDArray[np.float64],
    objective: npt.NDArray[np.float64],
    error: npt.NDArray[np.float64],
    rows: npt.NDArray[np.float64],
    epsilon: float,
    basis: npt.NDArray[np.int32],
    at_upper: npt.NDArray[np.uint8],
    policy: npt.NDArray[np.float64],
    gap: npt.NDArray[np.float64],
    status: npt.NDArray[np.int8],
    threads: int,
) -> int: ...
def solve_mixture(
    gain: npt.NDArray[np.float64],
    value: npt.NDArray[np.float64],
    floor: npt.NDArray[np.float64],
    reach: bool,
    basis: npt.NDArray[np.int64],
    weight: npt.NDArray[np.float64],
    multiplier: npt.NDArray[np.float64],
) -> tuple[bool, float, float]: ...
def solve_values(
    ptr: npt.NDArray[np.int64],
    weight: npt.NDArray[np.float64],
    indptr: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    data: npt.NDArray[np.float64],
    discount: float,
    rhs: npt.NDArray[np.float64],
    value: npt.NDArray[np.float64],
    tol: float,
    max_products: int,
    threads: int,
) -> tuple[float, int]: ...
def pair_values(
    indptr: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    data: npt.NDArray[np.float64],
    discount: npt.NDArray[np.float64],
    reward: npt.NDArray[np.float64],
    v: npt.NDArray[np.float64],
    q: npt.NDArray[np.float64],
    threads: int,
) -> None: ...
def best_response(
    ptr: npt.NDArray[np.int64],
    indptr: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    data: npt.NDArray[np.float64],
    discount: float,
    initial: npt.NDArray[np.float64],
    baseline: npt.NDArray[np.float64],
    error: npt.NDArray[np.float64],
    epsilon: float,
    reward: npt.NDArray[np.float64],
    elsewhere: npt.NDArray[np.float64],
    policy: npt.NDArray[np.float64],
    value: npt.NDArray[np.float64],
    visits: npt.NDArray[np.float64],
    kept: npt.NDArray[np.uint8],
    rough: float,
    tol: float,
    accepted: float,
    rounding: float,
    max_products: int,
    max_rounds: int,
    threads: int,
) -> int: ...

class Estimates:
    def __init__(self, discount: npt.NDArray[np.float64], has_model: bool) -> None: ...
    def weigh(
        self,
        ptr: npt.NDArray[np.int64],
        log_ratio: npt.NDArray[np.float64],
        log_weight: npt.NDArray[np.float64],
    ) -> None: ...
    def average(
        self,
        first: int,
        ptr: npt.NDArray[np.int64],
        log_ratio: npt.NDArray[np.float64],
        reward: npt.NDArray[np.float64],
        v: npt.NDArray[np.float64],
        q: npt.NDArray[np.float64],
        tail: npt.NDArray[np.float64],
        terms: npt.NDArray[np.float64],
    ) -> None: ...
    def finish(
        self,
        first: int,
        ptr: npt.NDArray[np.int64],
        log_ratio: npt.NDArray[np.float64],
        reward: npt.NDArray[np.float64],
        v: npt.NDArray[np.float64],
        q: npt.NDArray[np.float64],
        tail: npt.NDArray[np.float64],
        terms: npt.NDArray[np.float64],
    ) -> None: ...

def drawn_gains(
    state_ptr: npt.NDArray[np.int64],
    pair_key: npt.NDArray[np.int64],
    objective_key: npt.NDArray[np.int64],
    outcome_ptr: npt.NDArray[np.int64],
    outcome_next: npt.NDArray[np.int64],
    outcome_reward: npt.NDArray[np.float64],
    count_ptr: npt.NDArray[np.int64],
    count_outcome: npt.NDArray[np.int64],
    count: npt.NDArray[np.float64],
    share: npt.NDArray[np.float64],
    going: npt.NDArray[np.float64],
    others: npt.NDArray[np.float64],
    end_others: npt.NDArray[np.float64],
    extra: npt.NDArray[np.float64],
    concentration: npt.NDArray[np.float64],
    cumulative: npt.NDArray[np.float64],
    end_concentration: npt.NDArray[np.float64],
    end_cumulative: npt.NDArray[np.float64],
    reward_mean: npt.NDArray[np.float64],
    reward_noise: npt.NDArray[np.float64],
    weight: npt.NDArray[np.float64],
    starts: npt.NDArray[np.float64],
    value: npt.NDArray[np.float64],
    visits: npt.NDArray[np.float64],
    discount: float,
    tol: float,
    seed: int,
    first: int,
    threads: int,
    out: npt.NDArray[np.float64],
) -> None: ...
def draw_gammas(shape: npt.NDArray[np.float64], seed: int, out: npt.NDArray[np.float64]) -> None: ...
def mark_outcomes(
    ptr: npt.NDArray[np.int64],
    indptr: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    data: npt.NDArray[np.float64],
    visits: npt.NDArray[np.float64],
    acted: npt.NDArray[np.uint8],
    flag: npt.NDArray[np.uint8],
    distinct: npt.NDArray[np.float64],
    on: npt.NDArray[np.float64],
    threads: int,
) -> None: ...
def log_rising(alpha: npt.NDArray[np.float64], count: npt.NDArray[np.float64], threads: int) -> float: ...
def successor_likelihood(
    ptr: npt.NDArray[np.int64],
    indptr: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    data: npt.NDArray[np.float64],
    visits: npt.NDArray[np.float64],
    flag: npt.NDArray[np.uint8],
    even: npt.NDArray[np.float64],
    others: npt.NDArray[np.float64],
    grid: npt.NDArray[np.float64],
    out: npt.NDArray[np.float64],
    threads: int,
) -> None: ...
def worst_outcomes(
    ptr: npt.NDArray[np.int64],
    indptr: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    data: npt.NDArray[np.float64],
    visits: npt.NDArray[np.float64],
    flag: npt.NDArray[np.uint8],
    ended: npt.NDArray[np.uint8],
    value: npt.NDArray[np.float64],
    worst: npt.NDArray[np.int64],
    threads: int,
) -> None: ...
def solve_mean(
    ptr: npt.NDArray[np.int64],
    indptr: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    data: npt.NDArray[np.float64],
    visits: npt.NDArray[np.float64],
    flag: npt.NDArray[np.uint8],
    weight: npt.NDArray[np.float64],
    even: npt.NDArray[np.float64],
    extra: npt.NDArray[np.float64],
    worst: npt.NDArray[np.int64],
    discount: float,
    transposed: bool,
    rhs: npt.NDArray[np.float64],
    value: npt.NDArray[np.float64],
    tol: float,
    max_products: int,
    threads: int,
) -> float: ...
def gains_covariance(
    ptr: npt.NDArray[np.int64],
    indptr: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    data: npt.NDArray[np.float64],
    visits: npt.NDArray[np.float64],
    flag: npt.NDArray[np.uint8],
    discount: npt.NDArray[np.float64],
    value: npt.NDArray[np.float64],
    state_visits: npt.NDArray[np.float64],
    policy: npt.NDArray[np.float64],
    moved: npt.NDArray[np.float64],
    untried: npt.NDArray[np.float64],
    on: npt.NDArray[np.float64],
    ended: npt.NDArray[np.float64],
    share_on: npt.NDArray[np.float64],
    even: npt.NDArray[np.float64],
    counted: float,
    share_end: npt.NDArray[np.float64],
    going: npt.NDArray[np.float64],
    others: npt.NDArray[np.float64],
    end_others: npt.NDArray[np.float64],
    hierarchical: bool,
    pessimism: float,
    worst: npt.NDArray[np.int64],
    on_concentration: npt.NDArray[np.float64],
    on_weight: npt.NDArray[np.float64],
    end_concentration: npt.NDArray[np.float64],
    end_weight: npt.NDArray[np.float64],
    out: npt.NDArray[np.float64],
    threads: int,
) -> None: ...

class EpisodeCounter:
    @property
    def n_rows(self) -> int: ...
    @property
    def n_episodes(self) -> int: ...
    @property
    def n_truncated(self) -> int: ...
    @property
    def n_dropped(self) -> int: ...
    @property
    def shortest(self) -> int: ...
    @property
    def longest(self) -> int: ...
    @property
    def n_states(self) -> int: ...
    @property
    def n_actions(self) -> int: ...
    @property
    def n_pairs(self) -> int: ...
    @property
    def n_groups(self) -> int: ...
    @property
    def n_parts(self) -> int: ...
    @property
    def n_return_parts(self) -> int: ...
    @property
    def bytes(self) -> float: ...
    def __init__(
        self,
        discount: npt.NDArray[np.float64],
        cost: npt.NDArray[np.uint8],
        step: bool,
        next: bool,
        terminated: bool,
        truncated: bool,
        prob: bool,
        largest: float,
        with_marks: bool,
    ) -> None: ...
    def add(
        self,
        episode: npt.NDArray[np.int64],
        step: npt.NDArray[np.int64],
        state: npt.NDArray[np.int64],
        action: npt.NDArray[np.int64],
        next: npt.NDArray[np.int64],
        has_next: npt.NDArray[np.uint8],
        terminated: npt.NDArray[np.uint8],
        truncated: npt.NDArray[np.uint8],
        prob: npt.NDArray[np.float64],
        reward: list[npt.NDArray[np.float64]],
        offset: npt.NDArray[np.int64],
    ) -> bool: ...
    def close(self) -> bool: ...
    def open_ends(self) -> npt.NDArray[np.int64]: ...
    def late_starts(self) -> npt.NDArray[np.int64]: ...
    def write(
        self,
        state: npt.NDArray[np.int64],
        initial: npt.NDArray[np.int64],
        action: npt.NDArray[np.int64],
        pair: npt.NDArray[np.int64],
        prob: npt.NDArray[np.float64],
        reward_range: npt.NDArray[np.float64],
        return_part: npt.NDArray[np.float64],
        return_range: npt.NDArray[np.float64],
    ) -> None: ...
    def count_outcomes(self, successors: npt.NDArray[np.int64], ended: npt.NDArray[np.int64]) -> None: ...
    def write_outcomes(
        self,
        place: npt.NDArray[np.int64],
        rank: npt.NDArray[np.int64],
        ptr: npt.NDArray[np.int64],
        state: npt.NDArray[np.int64],
        count: npt.NDArray[np.int64],
    ) -> None: ...
    def write_sums(self, stream: int, order: npt.NDArray[np.int64], part: npt.NDArray[np.float64]) -> None: ...
