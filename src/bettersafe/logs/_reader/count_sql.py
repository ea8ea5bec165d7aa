"""Counting by SQL, for logs of any size: only the result is held in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bettersafe._system.files import file_digest
from bettersafe._system.memory import check_memory, tally_bytes
from bettersafe.errors import DataError
from bettersafe.logs._reader.exact import sum_parts
from bettersafe.logs._reader.exact_sql import (
    SQUARE_FLOOR,
    Bits,
    bits_of_rewards,
    bits_of_squares,
    discounted_sum,
    sum_in_parts,
)
from bettersafe.logs._reader.files import expand
from bettersafe.logs.counts import Counts, Input, Origin, Rests, layered
from bettersafe.logs.dataset import label_array
from bettersafe.logs.tally import BLOCK, Groups, by_pair_in_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from bettersafe.logs._reader.files import PathsLike
    from bettersafe.logs._reader.relation import Source
    from bettersafe.logs.dataset import Columns
    from bettersafe.typing import Floats, Ints, Labels


Parts = list[tuple[str, int]]

MARK = "md5_number_lower(CAST(episode AS VARCHAR) || ' ' || (step))"
"""SQL: digest of (episode, step). MD5, because it is the same in all versions of DuckDB."""


def count_source(source: Source, *, mergeable: bool = False) -> Counts:
    """Counts of an open, checked log; if ``mergeable``, with the rests of its sums."""
    d = len(source.objectives)
    largest = np.maximum(np.abs(source.reward_min), np.abs(source.reward_max))
    sums: list[tuple[Parts, Parts]] = []
    for k in range(d):
        most, least, coarse = float(largest[k]), source.reward_least[k], source.reward_coarse[k]
        plain = sum_in_parts(f"r{k}", bits_of_rewards(most, least, coarse=coarse), source.n_rows)
        square = bits_of_squares(most, least, coarse=coarse)
        sums.append((plain, sum_in_parts(f"r{k} * r{k}", square, source.n_rows, floor=SQUARE_FLOOR)))
    aggregates = [sql for both in sums for parts in both for sql, _ in parts]
    prob = ["min(baseline_prob) AS low", "max(baseline_prob) AS high"] if source.has_baseline_prob else []
    with source.stage("groups"):
        source.ask(
            "CREATE TABLE groups AS SELECT state, action, next_state, terminated, count(*) AS n,"
            f" {', '.join([*(f'{sql} AS part_{i}' for i, sql in enumerate(aggregates)), *prob])}"
            " FROM log GROUP BY state, action, next_state, terminated"
        )
    states = _labels(source, "state", "SELECT state FROM groups UNION SELECT next_state FROM groups")
    actions = _labels(source, "action", "SELECT DISTINCT action FROM groups")
    [(n_groups, n_pairs)] = source.ask(
        "SELECT sum(n), count(*) FROM (SELECT count(*) AS n FROM groups GROUP BY state, action)"
    )
    check_memory(tally_bytes(n_groups, n_pairs, d), f"counting {n_groups:,} different transitions of {source.title}")
    pairs = by_pair_in_blocks(_blocks(source, states, actions, with_prob=bool(prob)), n_groups, states, actions)
    by_state_and_action = source.table(
        f"SELECT {', '.join(f'sum(part_{i}) AS part_{i}' for i in range(len(aggregates)))} FROM groups"
        " WHERE terminated OR next_state IS NOT NULL GROUP BY state, action ORDER BY state, action"
    )
    values = [by_state_and_action[f"part_{i}"].to_numpy() for i in range(len(aggregates))]
    layers = _layers([parts for both in sums for parts in both], values)
    rewards = {"reward_sum": layers[0::2], "reward_square_sum": layers[1::2]}
    [(n_episodes, n_truncated, n_dropped, shortest, longest)] = source.ask(
        "SELECT count(*), count(*) FILTER (WHERE NOT terminated), count(*) FILTER (WHERE dropped),"
        " min(n_rows), max(n_rows) FROM episodes"
    )
    first = source.table("SELECT first_state, count(*) AS n FROM episodes GROUP BY first_state")
    initial = np.zeros(states.size, dtype=np.int64)
    initial[np.searchsorted(states, np.array(first["first_state"].to_pylist()))] = first["n"].to_numpy()
    with source.stage("returns"):
        returns, edges = _return_moments(source, largest, longest, n_episodes)
    exact = {name: layered(found, pairs=True) for name, found in rewards.items()}
    exact |= {name: layered(found, pairs=False) for name, found in returns.items()}
    return Counts(
        **vars(pairs),
        **{name: total for name, (total, _) in exact.items()},  # type: ignore[arg-type]
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
        return_min=edges[:, 0],
        return_max=edges[:, 1],
        notes=source.notes,
        rests=Rests(**{name: rest for name, (_, rest) in exact.items()}) if mergeable else None,
    )


def input_digests(paths: PathsLike, known: Sequence[Input] = ()) -> dict[str, str]:
    """Path -> SHA-256 of every file. Raises DataError if two files are equal, or one is ``known``."""
    before = {file.sha256: file.name for file in known}
    digests: dict[str, str] = {}
    paths_of: dict[str, str] = {}
    for path in expand(paths):
        digest = file_digest(path)
        if digest in before:
            as_what = "" if before[digest] == path.name else f" as {before[digest]}"
            raise DataError(
                f"{path} was counted already{as_what}: its rows would count twice. Leave it out, or count it again with `force`."
            )
        other = paths_of.setdefault(digest, str(path))
        if other != str(path):
            raise DataError(f"{path} is the same as {other}: its rows would count twice. Leave one out.")
        digests[str(path)] = digest
    return digests


def source_origin(source: Source, columns: Columns, digests: Mapping[str, str]) -> Origin:
    """Origin of counts: the files with their digests (path -> sha256), and the episodes that may continue in other shards.

    An episode that did not terminate may continue in another shard. An episode whose first step is not 0, or not 1 if steps
    are numbered from 1, may have begun in another shard. Rows in file order have no steps, and are not checked.
    """
    step = "first_step + n_rows" if source.has_step else "NULL"
    ended = "terminated" if source.has_terminated else "false"
    first = "(SELECT CASE WHEN min(first_step) = 1 THEN 1 ELSE 0 END FROM episodes)"
    late = f"first_step NOT IN (0, {first})" if source.has_step else "false"
    return origin_of(
        columns,
        [(file.name, file.path) for file in source.files],
        digests,
        open_ends=_marks(source, step, f"NOT {ended}" if source.has_step else "false"),
        late_starts=_marks(source, "first_step", late),
    )


def origin_of(
    columns: Columns,
    names: Sequence[tuple[str, Path]],
    digests: Mapping[str, str],
    *,
    open_ends: npt.NDArray[np.uint64],
    late_starts: npt.NDArray[np.uint64],
) -> Origin:
    """Origin with the name, size and digest of every file."""
    return Origin(
        columns=columns,
        inputs=tuple(Input(name=name, bytes=path.stat().st_size, sha256=digests[str(path)]) for name, path in names),
        open_ends=open_ends,
        late_starts=late_starts,
    )


def _marks(source: Source, step: str, where: str) -> npt.NDArray[np.uint64]:
    """Digests of (episode, step), sorted."""
    found = source.table(f"SELECT {MARK} AS mark FROM (SELECT episode, {step} AS step FROM episodes WHERE {where})")
    return np.sort(found["mark"].to_numpy())


def _layers(sums: Sequence[Parts], values: Sequence[Floats]) -> list[Floats]:
    """Layers [m, P] of every sum, from the concatenated values of the parts."""
    found, at = [], 0
    for parts in sums:
        terms = [np.ldexp(values[at + i], exponent) for i, (_, exponent) in enumerate(parts)]
        found.append(sum_parts(np.stack(terms)))
        at += len(parts)
    return found


def _return_moments(
    source: Source, largest: Floats, longest: int, n_episodes: int
) -> tuple[dict[str, list[Floats]], Floats]:
    """Layers of Σ G_k and Σ G_k² over episodes, and min G_k, max G_k as [d, 2]."""
    # Only a log whose episodes start at different steps needs a join.
    [(low, high)] = source.ask("SELECT min(first_step), max(first_step) FROM episodes")
    rows, time = "log", f"step - ({low})"
    if low != high:
        rows, time = "log JOIN episodes USING (episode)", "step - first_step"
    returns, moments, edges = [], [], []
    for k, objective in enumerate(source.objectives):
        least = source.reward_least[k]
        bits = bits_of_rewards(float(largest[k]), least, coarse=False)
        total, at = discounted_sum(f"r{k}", time, objective.discount, bits=bits, least=least, longest=longest)
        returns.append(f"{total} AS g{k}")
        square = Bits(top=2 * at.top, low=2 * at.low - 53)
        moments += [
            sum_in_parts(f"g{k}", at, n_episodes),
            sum_in_parts(f"g{k} * g{k}", square, n_episodes, floor=SQUARE_FLOOR),
        ]
        edges += [f"min(g{k})", f"max(g{k})"]
    asked = [sql for parts in moments for sql, _ in parts] + edges
    [answer] = source.ask(f"SELECT {', '.join(asked)} FROM (SELECT {', '.join(returns)} FROM {rows} GROUP BY episode)")
    layers = _layers(moments, [np.array([value]) for value in answer[: -len(edges)]])
    return (
        {"return_sum": layers[0::2], "return_square_sum": layers[1::2]},
        np.array(answer[-len(edges) :]).reshape(-1, 2),
    )


def _labels(source: Source, role: str, sql: str) -> Labels:
    """Sorted labels of a query; DuckDB and NumPy sort them alike."""
    found = source.table(f"SELECT label FROM ({sql}) AS labels(label) WHERE label IS NOT NULL ORDER BY label")["label"]
    if source.kinds[role] != "text":
        return label_array(found.to_numpy())
    texts = found.to_pylist()
    ended = next((text for text in texts if text.endswith("\0")), None)
    if ended is not None:  # NumPy would drop the character, and two labels could become one
        raise DataError(f"{source.title}: {role} {ended!r} ends in a null character. Remove the character.")
    return label_array(np.array(texts, dtype=np.str_))


def _blocks(source: Source, states: Labels, actions: Labels, *, with_prob: bool) -> Iterator[Groups]:
    """Groups, with indices of labels, in blocks of whole states."""
    import pyarrow as pa
    from pyarrow import compute

    known = {"state": pa.array(states), "action": pa.array(actions)}

    def places(column: pa.ChunkedArray, role: str) -> Ints:
        found = compute.index_in(column, value_set=known[role].cast(column.type))
        return found.fill_null(-1).to_numpy().astype(np.int64)  # type: ignore[no-any-return]

    def groups_of(table: pa.Table) -> Groups:
        outcome = places(table["next_state"], "state")
        return Groups(
            state=places(table["state"], "state"),
            action=places(table["action"], "action"),
            outcome=np.where(table["terminated"].to_numpy(), -1, np.where(outcome < 0, -2, outcome)),
            count=table["n"].to_numpy(),
            prob_min=table["low"].to_numpy() if with_prob else None,
            prob_max=table["high"].to_numpy() if with_prob else None,
        )

    waiting: pa.Table | None = None
    for batch in source.batches(
        f"SELECT state, action, next_state, terminated, n{', low, high' if with_prob else ''} FROM groups"
        " ORDER BY state, action, terminated DESC, next_state",
        BLOCK,
    ):
        table = pa.Table.from_batches([batch])
        waiting = table if waiting is None else pa.concat_tables([waiting, table])
        # rows of the last state may continue in the next batch
        last = compute.index(waiting["state"], waiting["state"][-1]).as_py()
        if last:
            yield groups_of(waiting.slice(0, last))
            waiting = waiting.slice(last)
    if waiting is not None:
        yield groups_of(waiting)
