"""Counting by SQL: the statistics of an open log of any size, of which only the small result is held."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.counts import Counts
from bettersafe.data import label_array
from bettersafe.tally import Groups, by_pair

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from bettersafe.data import Labels
    from bettersafe.logs.source import Source
    from bettersafe.mdp import Floats, Ints


def count_source(source: Source) -> Counts:
    """Counts of an open, checked log."""
    d = len(source.objectives)
    largest = np.maximum(np.abs(source.reward_min), np.abs(source.reward_max))
    sums = [_exact_sum(f"r{k}", largest[k], source.n_rows) + f" AS sum_{k}" for k in range(d)]
    squares = [_exact_sum(f"r{k} * r{k}", largest[k] ** 2, source.n_rows) + f" AS square_{k}" for k in range(d)]
    prob = ["min(baseline_prob) AS low", "max(baseline_prob) AS high"] if source.has_baseline_prob else []
    groups = source.table(
        "SELECT state, action, next_state, terminated, count(*) AS n,"
        f" {', '.join([*sums, *squares, *prob])} FROM log GROUP BY state, action, next_state, terminated"
        " ORDER BY state, action, terminated DESC, next_state"
    )
    is_text = source.kinds["state"] == "text"
    states, index = _encode([groups["state"], groups["next_state"]], is_text=is_text)
    actions, action = _encode([groups["action"]], is_text=source.kinds["action"] == "text")
    outcome = np.where(groups["terminated"].to_numpy(), -1, np.where(index[1] < 0, -2, index[1]))
    counted = groups["n"].to_numpy()
    pairs = by_pair(
        Groups(
            state=index[0],
            action=action[0],
            outcome=outcome,
            count=counted,
            reward=np.stack([groups[f"sum_{k}"].to_numpy() for k in range(d)]),
            square=np.stack([groups[f"square_{k}"].to_numpy() for k in range(d)]),
            prob_min=groups["low"].to_numpy() if source.has_baseline_prob else None,
            prob_max=groups["high"].to_numpy() if source.has_baseline_prob else None,
        ),
        states,
        actions,
    )
    [(n_episodes, n_truncated, n_dropped, shortest, longest)] = source.ask(
        "SELECT count(*), count(*) FILTER (WHERE NOT terminated), count(*) FILTER (WHERE dropped),"
        " min(n_rows), max(n_rows) FROM episodes"
    )
    first = source.table("SELECT first_state, count(*) AS n FROM episodes GROUP BY first_state")
    initial = np.zeros(states.size, dtype=np.int64)
    initial[np.searchsorted(states, np.array(first["first_state"].to_pylist()))] = first["n"].to_numpy()
    moments = np.array(_return_moments(source, largest, longest)).reshape(d, 4).T
    return Counts(
        **vars(pairs),
        state_labels=states,
        action_labels=actions,
        objectives=source.objectives,
        reward_min=source.reward_min,
        reward_max=source.reward_max,
        unseen_reward=np.zeros(d),
        initial_count=initial,
        n_rows=source.n_rows,
        n_episodes=n_episodes,
        n_truncated=n_truncated,
        n_dropped=n_dropped,
        length_min=shortest,
        length_max=longest,
        return_sum=moments[0],
        return_square_sum=moments[1],
        return_min=moments[2],
        return_max=moments[3],
        notes=source.notes,
    )


def _return_moments(source: Source, largest: Floats, longest: int) -> list[float]:
    """Σ G_k, Σ G_k², min G_k, max G_k over episodes, for k = 0, 1, ... in turn."""
    # Most logs number the steps of every episode from one and the same number; only others need a join.
    [(low, high)] = source.ask("SELECT min(first_step), max(first_step) FROM episodes")
    rows, time = "log", f"step - ({low})"
    if low != high:
        rows, time = "log JOIN episodes USING (episode)", "step - first_step"
    returns, moments = [], []
    for k, objective in enumerate(source.objectives):
        paid = f"pow({objective.discount!r}::DOUBLE, {time}) * r{k}"
        returns.append(f"{_exact_sum(paid, largest[k], longest)} AS g{k}")
        bound = largest[k] * longest
        total = _exact_sum(f"g{k}", bound, source.n_rows)
        square = _exact_sum(f"g{k} * g{k}", bound**2, source.n_rows)
        moments += [total, square, f"min(g{k})", f"max(g{k})"]
    [answer] = source.ask(
        f"SELECT {', '.join(moments)} FROM (SELECT {', '.join(returns)} FROM {rows} GROUP BY episode)"
    )
    return list(answer)


def _exact_sum(expression: str, bound: float, n_terms: int) -> str:
    """SQL: the sum of at most ``n_terms`` numbers of size at most ``bound``, the same in whatever order.

    Threads add rows in an order that changes from run to run, and sums of doubles change with it. So each
    term is scaled by a power of two into a 128-bit integer, which keeps every bit that can matter, and
    integers are added.
    """
    # 125 bits, less one for each doubling of the number of terms, hold the sum with its sign.
    room = 125 - math.ceil(math.log2(n_terms + 1)) - (math.frexp(bound)[1] if bound > 0 else 0)
    scale = math.ldexp(1.0, min(room, 1000))
    return f"CAST(sum(CAST(({expression}) * {scale!r}::DOUBLE AS HUGEINT)) AS DOUBLE) / {scale!r}::DOUBLE"


def _encode(columns: Sequence[pa.ChunkedArray], *, is_text: bool) -> tuple[Labels, list[Ints]]:
    """The sorted labels in Arrow columns, and the index of every cell among them (-1 for null)."""
    import pyarrow as pa

    chunks = [chunk for column in columns for chunk in column.chunks]
    coded = pa.chunked_array(chunks, type=columns[0].type).combine_chunks().dictionary_encode()
    found = np.array(coded.dictionary.to_pylist(), dtype=np.str_ if is_text else np.int64)
    order = np.argsort(found)
    rank = np.empty(found.size + 1, dtype=np.int64)
    rank[order] = np.arange(found.size)
    rank[-1] = -1  # where a null points to
    indices = rank[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    cuts = np.cumsum([len(column) for column in columns])[:-1]
    return label_array(found[order]), np.split(indices, cuts)
