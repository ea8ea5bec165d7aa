"""Signatures of the C++ kernel; `programs.hpp`, `linear.hpp`, `draws.hpp` and `ope.hpp` say what each does."""

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
