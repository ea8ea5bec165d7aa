"""Calls of every function of the kernel: good ones, and what can be wrong with them.

Run as a program it makes the bad ones and prints what came of each as JSON, so that a crash ends this process and not that of the tests.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import numpy as np

from bettersafe import _kernel

K: Any = _kernel.compiled

POINTERS = {"ptr", "indptr", "state_ptr", "outcome_ptr", "count_ptr"}
INDICES = {"indices", "outcome_next", "count_outcome", "worst", "place", "order"}
FINITE = {
    "solve_programs": ("baseline", "objective", "rows"),
    "solve_mixture": ("gain", "value", "floor"),
    "best_response": ("baseline",),
    "solve_mean": ("weight", "even", "extra", "rhs"),
    "drawn_gains": (
        "outcome_reward",
        "count",
        "share",
        "going",
        "others",
        "extra",
        "concentration",
        "weight",
        "starts",
    ),
    "draw_gammas": ("shape",),
    "Estimates.weigh": ("log_ratio",),
}
SCALARS = {
    "discount": (np.nan, -0.1, 1.1, 2),
    "tol": (np.nan, -1.0, 2.0),
    "threads": (0, -1, 2**31, 2**70, 1.5),
    "max_products": (-1, 2**62, None),
    "seed": (-1, 2**64, 0.5),
    "first": (-1, 2**63 - 1),
    "epsilon": (np.nan, -1.0),
    "rough": (np.nan, -1.0, 2.0),
    "accepted": (np.nan, -1.0, 2.0),
    "rounding": (np.nan, -1.0, 2.0),
    "max_rounds": (0, 2**62, None),
    "reach": (1, None),
    "stream": (-1, 99),
    "counted": (np.nan, 2.0),
    "pessimism": (np.nan, -1.0),
    "hierarchical": (1, None),
    "transposed": (0, "no"),
    "has_model": (1, None),
    "step": (1,),
    "largest": (np.inf, np.nan, 1e200, -1.0),
}
OUTPUTS = {
    "solve_programs": ("basis", "at_upper", "policy", "gap", "status"),
    "solve_mixture": ("basis", "weight", "multiplier"),
    "solve_values": ("value",),
    "pair_values": ("q",),
    "best_response": ("policy", "value", "visits", "kept"),
    "mark_outcomes": ("flag", "distinct", "on"),
    "successor_likelihood": ("out",),
    "worst_outcomes": ("worst",),
    "solve_mean": ("value",),
    "gains_covariance": ("out",),
    "drawn_gains": ("out",),
    "draw_gammas": ("out",),
    "Estimates.weigh": ("log_weight",),
    "Estimates.average": ("terms",),
    "Estimates.finish": ("terms",),
    "EpisodeCounter.write": (
        "state",
        "initial",
        "action",
        "pair",
        "prob",
        "reward_range",
        "return_part",
        "return_range",
    ),
    "EpisodeCounter.count_outcomes": ("successors", "ended"),
    "EpisodeCounter.write_outcomes": ("state", "count"),
    "EpisodeCounter.write_sums": ("part",),
}


def csr(rng, n_rows, n_columns, index=np.int32):
    """Rows that sum to at most 1, as indptr, indices, data."""
    length = rng.integers(1, 5, n_rows)
    indptr = np.append(0, np.cumsum(length)).astype(index)
    indices = np.concatenate([np.sort(rng.choice(n_columns, size, replace=False)) for size in length]).astype(index)
    return indptr, indices, rng.random(indices.size) / 5.0


def counted_arrays(rng, n_states, index=np.int32):
    """The first six arguments of the functions of the mean process."""
    ptr = np.append(0, np.cumsum(rng.integers(1, 4, n_states))).astype(np.int64)
    indptr, indices, data = csr(rng, int(ptr[-1]), n_states, index)
    flag = rng.integers(0, 2, indices.size).astype(np.uint8) * 3
    return {
        "ptr": ptr, "indptr": indptr, "indices": indices, "data": data, "visits": np.full(ptr[-1], 5.0), "flag": flag,
    }  # fmt: skip


def counter(n=40, n_objectives=2):
    """An EpisodeCounter with all columns, and good rows for it."""
    rng = np.random.default_rng(5)
    episode = np.repeat(np.arange(n // 4), 4)
    step = np.tile(np.arange(4), n // 4)
    state = rng.integers(0, 6, n)
    last = step == 3
    made = K.EpisodeCounter(
        np.full(n_objectives, 0.9), np.zeros(n_objectives, np.uint8), True, True, True, True, True, 1e100, True
    )
    rows = {
        "episode": episode,
        "step": step,
        "state": state,
        "action": rng.integers(0, 3, n),
        "next": np.append(state[1:], 0),
        "has_next": np.packbits(np.ones(n, bool), bitorder="little"),
        "terminated": np.packbits(last, bitorder="little"),
        "truncated": np.packbits(np.zeros(n, bool), bitorder="little"),
        "prob": np.full(n, 0.5),
        "reward": [rng.normal(size=n) for _ in range(n_objectives)],
        "offset": np.zeros(3, np.int64),
    }
    return made, rows


def closed_counter():
    """An EpisodeCounter whose results can be written."""
    made, rows = counter()
    assert made.add(**rows)
    assert made.close()
    return made


def outcome_places(made):
    """Good arguments of EpisodeCounter.write_outcomes."""
    successors, ended = np.empty((2, made.n_pairs), np.int64)
    made.count_outcomes(successors, ended)
    ptr = np.append(0, np.cumsum(successors))
    return {
        "place": np.arange(made.n_pairs), "rank": np.arange(made.n_states), "ptr": ptr,
        "state": np.empty(ptr[-1], np.int64), "count": np.empty(ptr[-1], np.int64),
    }  # fmt: skip


def estimates(stage):
    """Estimates of 5 trajectories, and good arguments of the method of a stage."""
    rng = np.random.default_rng(3)
    ptr = np.array([0, 2, 3, 7, 8, 12])
    n, rows, d = 5, 12, 2
    made = K.Estimates(np.array([0.9, 0.95]), True)
    block = {"ptr": ptr, "log_ratio": rng.normal(size=rows)}
    if stage == "weigh":
        return made, block | {"log_weight": np.empty(n)}
    made.weigh(**block, log_weight=np.empty(n))
    table = {name: rng.normal(size=(rows, d)) for name in ("reward", "v", "q")}
    full = {"first": 0} | block | table | {"tail": np.zeros((n, d)), "terms": np.empty((6, n, d))}
    if stage == "finish":
        made.average(**full)
    return made, full


def drawn(rng):
    """Good arguments of drawn_gains."""
    n, a, w, d, policies = 6, 2, 4, 2, 3
    pairs, outcomes = n * a, n * w
    following = rng.integers(0, n, outcomes)
    following[::w] = -1
    return {
        "state_ptr": np.arange(n + 1) * a,
        "pair_key": np.arange(pairs),
        "objective_key": np.arange(d),
        "outcome_ptr": np.arange(n + 1) * w,
        "outcome_next": following,
        "outcome_reward": rng.normal(size=(d, outcomes)),
        "count_ptr": np.arange(pairs + 1) * 2,
        "count_outcome": np.repeat(np.arange(pairs) // a * w, 2) + np.tile([0, 2], pairs),
        "count": np.ones(2 * pairs),
        "share": np.ones(outcomes),
        "going": np.ones(n),
        "others": np.full(pairs, 3.0),
        "end_others": np.full(pairs, 3.0),
        "extra": np.zeros(outcomes),
        "concentration": np.array([1.0, 4.0]),
        "cumulative": np.array([0.5, 1.0]),
        "end_concentration": np.array([2.0]),
        "end_cumulative": np.array([1.0]),
        "reward_mean": rng.normal(size=(d, pairs)),
        "reward_noise": np.ones((d, pairs)),
        "weight": np.full((policies, pairs), 0.5),
        "starts": np.ones(n),
        "value": np.zeros((d, n)),
        "visits": np.zeros((policies, n)),
        "discount": 0.9,
        "tol": 1e-9,
        "seed": 7,
        "first": 0,
        "threads": 2,
        "out": np.empty((4, policies - 1, d)),
    }


def good_call(name, index=np.int32):
    """A function (or method of a new object) of the kernel and arguments that it takes."""
    rng = np.random.default_rng(0)
    n = 8
    if name.startswith("Estimates."):
        made, arguments = estimates(name.split(".")[1])
        return getattr(made, name.split(".")[1]), arguments
    if name == "Estimates":
        return K.Estimates, {"discount": np.array([0.9]), "has_model": True}
    if name == "EpisodeCounter":
        flags = dict.fromkeys(("step", "next", "terminated", "truncated", "prob"), True)
        costs = {"discount": np.array([0.9]), "cost": np.zeros(1, np.uint8)}
        return K.EpisodeCounter, costs | flags | {"largest": 1e100, "with_marks": False}
    if name == "EpisodeCounter.add":
        made, arguments = counter()
        return made.add, arguments
    if name.startswith("EpisodeCounter."):
        made, method = closed_counter(), name.split(".")[1]
        x, a, p = made.n_states, made.n_actions, made.n_pairs
        arguments = {
            "write": {
                "state": np.empty(x, np.int64), "initial": np.empty(x, np.int64), "action": np.empty(a, np.int64),
                "pair": np.empty((2, p), np.int64), "prob": np.empty((2, p)), "reward_range": np.empty((2, 2)),
                "return_part": np.empty((4, made.n_return_parts)), "return_range": np.empty((2, 2)),
            },
            "count_outcomes": {"successors": np.empty(p, np.int64), "ended": np.empty(p, np.int64)},
            "write_outcomes": outcome_places(made),
            "write_sums": {"stream": 1, "order": np.arange(p), "part": np.empty((p, made.n_parts))},
        }[method]  # fmt: skip
        return getattr(made, method), arguments
    if name == "solve_programs":
        ptr, d = np.array([0, 3, 3, 7, 12]), 2
        programs = {
            "ptr": ptr, "baseline": np.repeat([1 / 3, 1 / 4, 1 / 5], [3, 4, 5]), "objective": rng.normal(size=12),
            "error": np.append(rng.random(11), np.inf), "rows": rng.normal(size=(d, 12)), "epsilon": 0.3,
        }  # fmt: skip
        warm = {"basis": np.full((4, d + 2), -1, np.int32), "at_upper": np.zeros(12, np.uint8)}
        found = {"policy": np.empty(12), "gap": np.empty(4), "status": np.empty(4, np.int8)}
        return K.solve_programs, programs | warm | found | {"threads": 2}
    if name == "solve_values":
        ptr = np.append(0, np.cumsum(rng.integers(1, 4, n)))
        indptr, indices, data = csr(rng, int(ptr[-1]), n, index)
        return K.solve_values, {
            "ptr": ptr, "weight": np.full(ptr[-1], 0.3), "indptr": indptr, "indices": indices, "data": data,
            "discount": 0.9, "rhs": rng.normal(size=(3, n)), "value": np.zeros((3, n)), "tol": 1e-12,
            "max_products": 100, "threads": 2,
        }  # fmt: skip
    if name == "pair_values":
        indptr, indices, data = csr(rng, 20, n, index)
        return K.pair_values, {
            "indptr": indptr, "indices": indices, "data": data, "discount": np.array([0.9, 0.8]),
            "reward": rng.normal(size=(2, 20)), "v": rng.normal(size=(2, n)), "q": np.empty((2, 20)), "threads": 2,
        }  # fmt: skip
    if name == "solve_mixture":
        gain = np.vstack([np.zeros(3), rng.normal(size=(7, 3)) + 0.3])
        found = {"basis": np.full(4, -(2**63)), "weight": np.empty(8), "multiplier": np.empty(3)}
        return K.solve_mixture, {"gain": gain, "value": gain @ np.ones(3), "floor": np.zeros(3), "reach": False} | found
    if name == "best_response":
        ptr = np.append(0, np.cumsum(rng.integers(1, 4, n)))
        indptr, indices, data = csr(rng, int(ptr[-1]), n, index)
        baseline = np.repeat(1.0 / np.diff(ptr), np.diff(ptr))
        return K.best_response, {
            "ptr": ptr, "indptr": indptr, "indices": indices, "data": data, "discount": 0.9, "initial": np.full(n, 1.0 / n),
            "baseline": baseline, "error": np.append(rng.random(ptr[-1] - 1), np.inf), "epsilon": 0.3,
            "reward": rng.normal(size=ptr[-1]), "elsewhere": np.zeros(n), "policy": baseline.copy(), "value": np.zeros(n),
            "visits": np.zeros(n), "kept": np.empty(n, np.uint8), "rough": 1e-8, "tol": 1e-14, "accepted": 1e-12, "rounding": 2e-15,
            "max_products": 200, "max_rounds": 50, "threads": 2,
        }  # fmt: skip
    if name == "log_rising":
        return K.log_rising, {"alpha": rng.random(30), "count": np.arange(30.0), "threads": 2}
    if name == "draw_gammas":
        return K.draw_gammas, {"shape": rng.random(20), "seed": 3, "out": np.empty(20)}
    if name == "drawn_gains":
        return K.drawn_gains, drawn(rng)
    counted = counted_arrays(rng, n, index)
    pairs = counted["visits"].size
    return getattr(K, name), mean_process_arguments(name, rng, counted, n, pairs) | {"threads": 2}


def mean_process_arguments(name, rng, counted, n, pairs):
    """Good arguments of a function of the mean process, but for the threads."""
    states, of_pairs = np.ones(n), np.ones(pairs)
    if name == "mark_outcomes":
        del counted["flag"]
        flag = np.zeros(counted["indices"].size, np.uint8)
        return counted | {"acted": np.ones(n, np.uint8), "flag": flag, "distinct": states, "on": of_pairs}
    if name == "successor_likelihood":
        return counted | {"even": states, "others": of_pairs, "grid": np.array([0.5, 2.0]), "out": np.empty(2)}
    if name == "worst_outcomes":
        return counted | {"ended": np.ones(n, np.uint8), "value": rng.normal(size=n), "worst": np.empty(n, np.int64)}
    worst = rng.integers(-2, n, n)
    if name == "solve_mean":
        matrix = {"weight": 0.1 * of_pairs, "even": 0.01 * states, "extra": 0.01 * states.copy(), "worst": worst}
        rhs = {"rhs": rng.normal(size=(3, n)), "value": np.zeros((3, n)), "tol": 1e-9, "max_products": 100}
        return counted | matrix | {"discount": 0.9, "transposed": False} | rhs
    of_states = {key: np.ones(n) for key in ("share_on", "even", "share_end", "going")}
    by_pair = {key: np.ones(pairs) for key in ("policy", "moved", "on", "ended", "others", "end_others")}
    priors = {key: np.array([0.5, 0.5]) for key in ("on_concentration", "on_weight", "end_concentration", "end_weight")}
    tables = {key: rng.random((n, 2, 2)) for key in ("value", "state_visits")} | {"untried": rng.random((n, 3))}
    rest = {"discount": np.array([0.9, 0.8]), "counted": 1.0, "hierarchical": True, "pessimism": 1.0, "worst": worst}
    return counted | of_states | by_pair | priors | tables | rest | {"out": np.empty((2, 2))}


FUNCTIONS = (
    "solve_programs", "solve_mixture", "solve_values", "pair_values", "best_response", "log_rising", "draw_gammas", "drawn_gains",
    "mark_outcomes", "successor_likelihood", "worst_outcomes", "solve_mean", "gains_covariance", "Estimates", "Estimates.weigh",
    "Estimates.average", "Estimates.finish", "EpisodeCounter", "EpisodeCounter.add", "EpisodeCounter.write",
    "EpisodeCounter.count_outcomes", "EpisodeCounter.write_outcomes", "EpisodeCounter.write_sums",
)  # fmt: skip


def changed(array, place, value):
    """A copy with one entry changed; a value that the type does not hold becomes its largest."""
    copy = array.copy()
    if copy.dtype.kind == "i":
        info = np.iinfo(copy.dtype)
        value = min(max(value, info.min), info.max)
    copy.reshape(-1)[place] = value
    return copy


def wrong_types(array):
    """What is no array of its type and layout."""
    other = np.float32 if array.dtype == np.float64 else np.float64
    yield "None", None
    yield "list", array.tolist()
    yield "text", "abc"
    yield "dtype", array.astype(other)
    yield "byte order", array.astype(array.dtype.newbyteorder()) if array.dtype.itemsize > 1 else array.astype(object)
    if array.size > 1:
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        yield "strided", wide[..., ::2]


def wrong_shapes(array):
    """Another number of entries or axes."""
    yield "one axis more", array[None].copy()
    yield "empty", array[:0].copy()
    yield "shorter", array[:-1].copy()
    yield "longer", np.concatenate([array, array[-1:]])
    if array.dtype.itemsize > 1:
        room = np.zeros(array.nbytes + 1, np.uint8)
        yield "unaligned", room[1:].view(array.dtype).reshape(array.shape)


def wrong_numbers(function, name, array):
    """Pointers, indices and numbers outside of what they may be."""
    if name in POINTERS:
        for label, place, value in (
            ("begins at 1", 0, 1), ("begins below 0", 0, -1), ("falls", -2, 2**62), ("ends far away", -1, 2**62),
            ("ends beyond", -1, int(array[-1]) + 1), ("ends below 0", -1, -(2**62)), ("wraps around", -2, -(2**63)),
        ):  # fmt: skip
            yield label, changed(array, place, value)
    if name in INDICES and name not in OUTPUTS.get(function, ()):
        for value in (2**30, 2**31 - 1, 2**62, -5, -(2**31), -(2**62)):
            for place in (0, array.size // 2, -1):
                yield f"{value} at {place}", changed(array, place, value)
    if name in FINITE.get(function, ()):
        for value in (np.nan, np.inf):
            yield str(value), changed(array, -1, value)


def bad_calls():
    """Name of the function, of the argument, what is wrong, and the arguments."""
    for function in FUNCTIONS:
        for index in (np.int32, np.int64):
            good = good_call(function, index)[1]
            if index is np.int64 and "indptr" not in good:
                continue
            for name, value in good.items():
                if isinstance(value, np.ndarray):
                    for group in (wrong_types(value), wrong_shapes(value), wrong_numbers(function, name, value)):
                        for label, wrong in group:
                            yield function, name, label, {name: wrong}, index
                    if name in OUTPUTS.get(function, ()) and value.size:
                        locked = value.copy()
                        locked.flags.writeable = False
                        yield function, name, "read-only", {name: locked}, index
                        for other, shared in good.items():
                            same = isinstance(shared, np.ndarray) and shared.dtype == value.dtype
                            if other != name and same and shared.shape == value.shape:
                                yield function, name, f"shared with {other}", {name: shared}, index
                else:
                    for wrong in SCALARS.get(name, ()):
                        yield function, name, repr(wrong), {name: wrong}, index


ACCEPTED = {
    ("Estimates", "discount", "longer"),
    ("EpisodeCounter.write_outcomes", "ptr", "longer"),
    *(("drawn_gains", "out", label) for label in ("empty", "shorter", "longer")),
    *(("EpisodeCounter.add", name, "longer") for name in ("has_next", "terminated", "truncated")),
    ("EpisodeCounter.add", "has_next", "empty"),
}
"""Lengths that are free: of arrays that say how many there are, and of those that may have more bits or places than are used."""


def outcome(call, arguments):
    """Type and text of what a call raises; nothing if it raises nothing."""
    try:
        call(**arguments)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None


def make_bad_calls():
    """What came of every bad call."""
    found = []
    for function, name, label, wrong, index in bad_calls():
        call, good = good_call(function, index)
        for key, value in wrong.items():  # shared memory: of the arguments of this very call
            same = label.removeprefix("shared with ")
            good[key] = good[same] if same in good and label.startswith("shared") else value
        found.append([function, name, label, outcome(call, good)])
    return found


def random_array(rng, like):
    """An array somewhat like another one."""
    shape = list(like.shape)
    if rng.random() < 0.2:
        shape[rng.integers(len(shape))] = int(rng.integers(0, 12))
    dtype = like.dtype if rng.random() < 0.9 else rng.choice([np.int32, np.int64, np.float64, np.uint8])
    kind = rng.integers(5)
    if np.issubdtype(dtype, np.floating):
        scale = 10.0 ** rng.integers(-320, 308) if kind == 0 else 1.0
        array = (rng.random(shape) if kind < 3 else rng.normal(size=shape)) * scale
        if kind == 4 and array.size:
            array.reshape(-1)[rng.integers(array.size)] = rng.choice(
                [np.nan, np.inf, -np.inf, 0.0, 1e308, -1e308, 5e-324]
            )
        return array.astype(dtype)
    info = np.iinfo(dtype)
    high = min(int(rng.choice([2, 8, 30, info.max])), info.max)
    array = rng.integers(0 if kind else max(-high, info.min), high, shape, dtype=dtype)
    return np.sort(array.reshape(-1)).reshape(shape) if rng.random() < 0.5 else array


def fuzz(seed, calls):
    """Random changes of good calls; what they raise."""
    rng = np.random.default_rng(seed)
    raised = {}
    for _ in range(calls):
        function = str(rng.choice(FUNCTIONS))
        call, arguments = good_call(function, rng.choice([np.int32, np.int64]))
        for name in rng.choice(list(arguments), min(len(arguments), int(rng.integers(1, 4))), replace=False).tolist():
            value = arguments[name]
            if isinstance(value, np.ndarray):
                arguments[name] = random_array(rng, value)
            elif isinstance(value, list):
                arguments[name] = [random_array(rng, column) for column in value[: rng.integers(0, 3)]]
            elif isinstance(value, float):
                arguments[name] = float(rng.choice([0.0, 0.5, 0.999999, 1.0, -1.0, np.nan, np.inf, 1e-300]))
            else:
                arguments[name] = int(rng.choice([-1, 0, 1, 2, 3, 64, 2**31, 2**62]))
        with np.errstate(all="ignore"):
            error = outcome(call, arguments)
        kind = "nothing" if error is None else error[0]
        raised[kind] = raised.get(kind, 0) + 1
    return raised


def out_of_turn():
    """Methods of estimates and counters in a wrong order."""
    found = {}
    made, block = estimates("average")
    found["finish() before average()"] = outcome(made.finish, block)
    made.average(**block)
    found["weigh() after average()"] = outcome(made.weigh, estimates("weigh")[1])
    made.finish(**block)
    found["average() after finish()"] = outcome(made.average, block)
    made, block = estimates("average")
    longer = block | {"ptr": np.array([0, 1, 2, 3, 4, 12])}
    found["a longer trajectory"] = outcome(made.average, longer)
    made, rows = counter()
    for method in ("write", "count_outcomes", "write_outcomes", "write_sums"):
        found[f"{method}() before close()"] = outcome(getattr(made, method), good_call(f"EpisodeCounter.{method}")[1])
    made = closed_counter()
    found["add() after close()"] = outcome(made.add, rows)
    found["close() twice"] = outcome(made.close, {})
    places = outcome_places(made)
    crowded = places | {"place": np.zeros_like(places["place"])}
    found["pairs in one place"] = outcome(made.write_outcomes, crowded)
    made.write_outcomes(**places)
    found["write_outcomes() twice"] = outcome(made.write_outcomes, places)
    return found


def after_refusal():
    """A counter that refused rows refuses all that follows."""
    made, rows = counter()
    bad = rows | {"reward": [np.full(40, np.nan), rows["reward"][1]]}
    return [
        made.add(**rows),
        made.add(**bad),
        made.add(**rows),
        made.close(),
        outcome(made.write_sums, good_call("EpisodeCounter.write_sums")[1]),
    ]


def many_threads():
    """One object, used by several threads at once: calls work or are refused."""
    made = K.Estimates(np.array([0.9]), False)
    rows = 100_000
    kinds = set()

    def work():
        block = {"ptr": np.arange(0, rows + 1, 10), "log_ratio": np.zeros(rows), "log_weight": np.empty(rows // 10)}
        for _ in range(20):
            error = outcome(made.weigh, block)
            kinds.add("nothing" if error is None else error[0])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(kinds)


def odd_bases():
    """Random bases to start programs from, in and out of range and with repeats: all have the answer of a cold start."""
    rng = np.random.default_rng(11)
    call, arguments = good_call("solve_programs")
    call(**arguments)
    expected = arguments["policy"].copy()
    worst = 0.0
    for _ in range(2000):
        call, arguments = good_call("solve_programs")
        arguments["basis"] = rng.integers(-3, int(rng.choice([6, 20, 30, 2**31 - 1])), (4, 4)).astype(np.int32)
        arguments["at_upper"] = rng.integers(0, 256, 12).astype(np.uint8)
        call(**arguments)
        worst = max(worst, float(np.max(np.abs(arguments["policy"] - expected))))
    return worst


def bad_models():
    """Public classes with index arrays that point elsewhere."""
    from scipy import sparse

    from bettersafe import MDP

    good = {
        "n_states": 3, "n_actions": 1, "pair_state": [0, 1, 2], "pair_action": [0, 0, 0], "reward": np.ones((1, 3)),
        "discount": [0.9], "initial": [1.0, 0.0, 0.0],
    }  # fmt: skip
    found = {}
    for form in (sparse.csr_array, sparse.csc_array, sparse.coo_array):
        for value in (2**30, -5):
            matrix = form(np.eye(3) * 0.5)
            arrays = (matrix.row, matrix.col) if form is sparse.coo_array else (matrix.indices,)
            for array in arrays:
                array[1] = value
            found[f"{matrix.format} {value}"] = outcome(MDP, good | {"transition": matrix})
    falling = sparse.csr_array(np.eye(3) * 0.5)
    falling.indptr[1] = 2**30
    found["falling indptr"] = outcome(MDP, good | {"transition": falling})
    return found


if __name__ == "__main__":
    tasks = {
        "bad calls": make_bad_calls, "out of turn": out_of_turn, "after refusal": after_refusal, "models": bad_models,
        "many threads": many_threads, "odd bases": odd_bases, "fuzz": lambda: fuzz(int(sys.argv[2]), int(sys.argv[3])),
    }  # fmt: skip
    print(json.dumps(tasks[sys.argv[1]]()))
