"""Logs counted in one pass and by SQL, for tests that compare the two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bettersafe.errors import DataError
from bettersafe.logs._reader import count_native
from bettersafe.logs.dataset import Columns, Objective
from bettersafe.logs.source import count_files

if TYPE_CHECKING:
    import pytest

    from bettersafe.logs.counts import Counts

REWARDS = [Objective(name="r0", discount=0.9)]


def in_one_pass(path: Any, objectives: list[Objective] = REWARDS, **options: Any) -> Counts | None:
    chosen: dict[str, Any] = {"columns": Columns(), "memory_limit": None, "digests": None, "progress": None}
    return count_native.count_sorted(path, objectives=objectives, **chosen | options)


def by_sql(monkeypatch: pytest.MonkeyPatch, path: Any, **options: Any) -> Counts:
    with monkeypatch.context() as patch:
        patch.setattr(count_native, "count_sorted", lambda *_, **__: None)
        return count_files(path, **options)


def assert_same_bits(one: object, other: object) -> None:
    """Fail unless all fields are equal, arrays to the last bit."""
    assert type(one) is type(other)
    for name, value in vars(one).items():
        found = getattr(other, name)
        if isinstance(value, np.ndarray):
            assert (value.dtype, value.shape) == (found.dtype, found.shape), name
            assert value.tobytes() == found.tobytes(), f"{name}: {value!r} and {found!r}"
        elif name in {"rests", "origin"} and value is not None:
            assert_same_bits(value, found)
        else:
            assert value == found, name


# Rewards of which sums are hard to get right, or for which the kernel has a way of its own.
AWKWARD = [
    lambda rng, n: rng.integers(-3, 4, n).astype(float),
    lambda rng, n: rng.choice([0.1, 0.2, 0.3, -0.7], n),
    lambda rng, n: np.round(rng.normal(0, 1, n), 3),
    lambda rng, n: rng.choice([1e-300, 1.0, -1e-300, 0.1], n),
    lambda rng, n: rng.choice([1e100, -1e100, 1e-5, 1.0], n),
    lambda rng, n: rng.choice([0.0, -0.0], n),
    lambda rng, n: rng.integers(-5000, 5000, n) / 1024,
    lambda rng, n: rng.normal(0, 1, n) * 10.0 ** rng.integers(-100, 90, n),
    lambda rng, n: rng.choice([5e-324, 2.0**-600, 3 * 2.0**-601, 2.0**-144 * 1.1], n),
    lambda rng, n: np.where(np.arange(n) < n // 2, 0.0, rng.normal(0, 1e-30, n)),
    lambda rng, n: rng.normal(0, 1, n).astype(np.float32),
    lambda rng, n: rng.integers(2**53, 2**62, n),
    lambda rng, n: rng.random(n) < 0.5,
]


def random_log(rng: np.random.Generator, n_episodes: int) -> tuple[pa.Table, list[Objective], Columns]:
    """A log in the order of episodes and steps, in which nothing is wrong, with some of the columns left out."""
    lengths = np.where(rng.random(n_episodes) < 0.3, 1, rng.integers(1, 8, n_episodes))
    n, last = int(lengths.sum()), np.cumsum(lengths) - 1
    is_last = np.isin(np.arange(n), last)
    labels = rng.integers(0, 6, n + 1)
    ended = is_last & (rng.random(n) < 0.6)
    following = np.append(labels[1:n], labels[n])
    following[is_last] = rng.integers(0, 8, is_last.sum())  # two states that are seen nowhere else
    gaps = (ended & (rng.random(n) < 0.7)) | (rng.random(n) < rng.choice([0.0, 0.3]))
    steps = np.concatenate([np.arange(length) for length in lengths])
    starts = [
        np.zeros(n_episodes),
        np.ones(n_episodes),
        rng.choice([0, 5, -3], n_episodes),
        rng.choice([1, 9], n_episodes),
    ]
    steps = steps + np.repeat(starts[rng.integers(4)], lengths).astype(np.int64)
    actions = rng.integers(0, 3, n)
    names = np.array(["", "a", "b c", "ä", "z" * 20, "日本", "7", "007"])
    kind = rng.integers(5)
    if kind < 2:
        scale = 1 if kind else 2**59
        state, after = pa.array(labels[:n] * scale - 3), pa.array(following * scale - 3, mask=gaps)
    elif kind == 2:
        state = pa.array(labels[:n].astype(np.int16))
        after = pa.array(np.where(gaps, np.nan, following))
    else:
        state, after = pa.array(names[labels[:n]]), pa.array(names[following], mask=gaps)
        if kind == 3:
            state = state.dictionary_encode()
    episode = np.sort(rng.choice(10 * n_episodes, n_episodes, replace=False)) - 5
    texts = np.array([f"e{number + 5:09d}" for number in episode])
    columns = {
        "episode": np.repeat(episode if rng.random() < 0.6 else texts, lengths),
        "step": steps,
        "state": state,
        "action": actions if rng.random() < 0.5 else np.array(["left", "right", "stay"])[actions],
        "next_state": after,
        "terminated": ended if rng.random() < 0.8 else ended.astype(np.int8),
        "truncated": is_last & ~ended & (rng.random(n) < 0.5),
        "baseline_prob": (1 + (labels[:n] + actions) % 3) / 3,
    }
    for name in ("next_state", "terminated", "truncated", "baseline_prob"):
        if rng.random() < 0.3:
            del columns[name]
    by_order = rng.random() < 0.2
    objectives = []
    for k in range(rng.integers(1, 4)):
        columns[f"r{k}"] = AWKWARD[rng.integers(len(AWKWARD))](rng, n)
        discount = float(rng.choice([0.0, 1e-9, 0.3, 0.99, 1 - 2**-53]))
        objectives.append(Objective(name=f"r{k}", discount=discount, lower_is_better=bool(rng.random() < 0.5)))
    return pa.table(columns), objectives, Columns(step="row-order") if by_order else Columns()


def plain(n_episodes: int = 20, length: int = 4, **cells: Any) -> dict[str, Any]:
    """Columns of a plain log; ``cells`` replaces some."""
    n = n_episodes * length
    rng = np.random.default_rng(0)
    state, is_last = rng.integers(0, 5, n), np.arange(n) % length == length - 1
    columns = {
        "episode": np.repeat(np.arange(n_episodes), length).tolist(),
        "step": np.tile(np.arange(length), n_episodes).tolist(),
        "state": state.tolist(),
        "action": rng.integers(0, 3, n).tolist(),
        "next_state": [None if end else int(x) for end, x in zip(is_last, np.roll(state, -1), strict=True)],
        "terminated": is_last.tolist(),
        "r0": np.round(rng.normal(0, 1, n), 2).tolist(),
    }
    return columns | cells


def outcome(count: Any) -> Any:
    try:
        return count()
    except DataError as error:
        return str(error)
