"""Merging counts of parts of a log, bit for bit equal to one count of the whole."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bettersafe._system.memory import check_memory, tally_bytes
from bettersafe.errors import DataError, ParameterError, check_options, check_types
from bettersafe.logs._reader.exact import sum_runs
from bettersafe.logs.counts import Counts, Origin, Rests, dropped_note, layered, owner_of, unite
from bettersafe.logs.tally import BLOCK, Groups, by_pair_in_blocks, concatenate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bettersafe.typing import Floats, Ints, Labels


def merge_counts(parts: Sequence[Counts], *, force: bool = False) -> Counts:
    """Merge counts of logs with different episodes; vocabularies are united and sorted.

    If every part was counted with ``mergeable=True``, the result is bit for bit that of one count of all files,
    for any parts in any order. Merge before ``with_rare``: whether a pair is rare depends on all the data.

    Args:
        parts: Counts to merge, at least one, with equal objectives and columns.
        force: Also merge parts with a file in common, or with an episode that seems to continue from one to another.

    Examples:
        >>> from bettersafe.logs import merge_counts
        >>> merge_counts([counts, bettersafe.count(later)]).n_episodes
        2000
    """
    check_types("parts", parts, Counts)
    check_options(force=force)
    if not parts:
        raise ParameterError("there is nothing to merge: name at least one counts file.")
    first = parts[0]
    for part in parts[1:]:
        _check_alike(first, part)
    if any(np.any(np.isnan(part.return_sum)) for part in parts):
        raise ParameterError("counts with a derived objective can't be merged. Merge first, then derive.")
    if not force:
        check_different(parts)
    states = unite([part.state_labels for part in parts], "state")
    actions = unite([part.action_labels for part in parts], "action")
    with_prob = all(part.baseline_prob is not None for part in parts)
    most = sum(part.n_pairs + part.outcome_state.size for part in parts)
    n_pairs = sum(part.n_pairs for part in parts)
    check_memory(tally_bytes(most, n_pairs, first.n_objectives), f"merging {most:,} different transitions")
    pairs = by_pair_in_blocks(_blocks(parts, states, actions, with_prob=with_prob), most, states, actions)
    initial = np.zeros(states.size, dtype=np.int64)
    for part in parts:
        initial[np.searchsorted(states, part.state_labels)] += part.initial_count
    sums, rests = _merged_sums(parts, pairs.pair_state * actions.size + pairs.pair_action, states, actions)
    n_dropped = sum(part.n_dropped for part in parts)
    return replace(
        first,
        **vars(pairs),
        **sums,  # type: ignore[arg-type]
        rests=rests if all(part.rests is not None for part in parts) else None,
        origin=_merged_origin(parts),
        state_labels=states,
        action_labels=actions,
        reward_min=np.min([part.reward_min for part in parts], axis=0),
        reward_max=np.max([part.reward_max for part in parts], axis=0),
        initial_count=initial,
        n_rows=sum(part.n_rows for part in parts),
        n_episodes=sum(part.n_episodes for part in parts),
        n_truncated=sum(part.n_truncated for part in parts),
        n_dropped=n_dropped,
        length_min=min(part.length_min for part in parts),
        length_max=max(part.length_max for part in parts),
        return_min=np.min([part.return_min for part in parts], axis=0),
        return_max=np.max([part.return_max for part in parts], axis=0),
        notes=_merged_notes(parts, n_dropped, with_prob=with_prob),
    )


def check_different(parts: Sequence[Counts]) -> None:
    """Raise DataError if two parts have a file in common, or an episode begins in one and continues in another."""
    origins = [part.origin for part in parts if part.origin is not None]
    known: dict[str, str] = {}
    for origin in origins:
        for file in origin.inputs:
            if file.sha256 in known:
                raise DataError(
                    f"{file.name} was counted already{_as(known[file.sha256], file.name)}: its rows would count twice."
                    " Leave it out, or count it again with `force`."
                )
            known[file.sha256] = file.name
    for one in origins:
        for other in origins:
            both = np.intersect1d(one.open_ends, other.late_starts).size if one is not other else 0
            if both:
                many = (
                    f"{both} episodes of {_files(one)} continue"
                    if both > 1
                    else f"an episode of {_files(one)} continues"
                )
                raise DataError(
                    f"{many} in {_files(other)}: counted separately, each part would be an episode of its own. Count the"
                    " files together, or merge them with `force`."
                )


def _check_alike(a: Counts, b: Counts) -> None:
    """Raise DataError unless two counts have equal objectives and columns."""
    names = [", ".join(objective.name for objective in part.objectives) for part in (a, b)]
    if names[0] != names[1]:
        raise DataError(
            f"counts to merge must have equal objectives; got ({names[0]}) in {_title(a)} and ({names[1]}) in {_title(b)}. Count one"
            " of them again."
        )
    alike: list[tuple[str, object, object]] = [
        (f" of objective {one.name}", one, other) for one, other in zip(a.objectives, b.objectives, strict=True)
    ]
    if a.origin is not None and b.origin is not None:
        alike.append((" (name of the column)", a.origin.columns, b.origin.columns))
    for what, one, other in alike:
        for name, value in vars(one).items():
            if value != vars(other)[name]:
                raise DataError(
                    f"counts to merge must agree; {name}{what} is {value!r} in {_title(a)} and {vars(other)[name]!r} in"
                    f" {_title(b)}. Count one of them again."
                )


def _merged_sums(
    parts: Sequence[Counts], pairs: Ints, states: Labels, actions: Labels
) -> tuple[dict[str, Floats], Rests]:
    """Sums and rests over all parts; ``pairs`` are the keys x·A + a of the result, sorted, shape [P]."""
    place = []
    for part in parts:
        state = np.searchsorted(states, part.state_labels)[part.pair_state]
        action = np.searchsorted(actions, part.action_labels)[part.pair_action]
        place.append(np.searchsorted(pairs, state * actions.size + action))
    sums, rests = {}, {}
    for name in ("reward_sum", "reward_square_sum", "return_sum", "return_square_sum"):
        by_objective = []
        of_pairs = name.startswith("reward")
        for k in range(parts[0].n_objectives):
            terms, owners = [], []
            for part, own in zip(parts, place, strict=True):
                rest = [] if part.rests is None else [layer[k] for layer in getattr(part.rests, name)]
                for layer in (getattr(part, name)[k], *rest):
                    terms.append(np.atleast_1d(layer))
                    owners.append(own if of_pairs else np.zeros(1, dtype=np.int64))
            owner = np.concatenate(owners)
            order = np.argsort(owner, kind="stable")
            starts = np.searchsorted(owner[order], np.arange(pairs.size if of_pairs else 1))
            by_objective.append(sum_runs(np.concatenate(terms)[order], starts))
        sums[name], rests[name] = layered(by_objective, pairs=of_pairs)
    return sums, Rests(**rests)


def _blocks(parts: Sequence[Counts], states: Labels, actions: Labels, *, with_prob: bool) -> Iterator[Groups]:
    """Groups of all parts, in the common vocabulary, in blocks of whole states."""
    state = [np.searchsorted(states, part.state_labels) for part in parts]
    action = [np.searchsorted(actions, part.action_labels) for part in parts]
    groups = np.zeros(states.size, dtype=np.int64)
    for part, own in zip(parts, state, strict=True):
        size = np.bincount(part.pair_state, weights=1 + np.diff(part.outcome_ptr), minlength=part.n_states)
        groups[own] += size.astype(np.int64)
    cuts = np.flatnonzero(np.diff(np.cumsum(groups) // BLOCK)) + 1
    for begin, end in pairwise([0, *cuts.tolist(), states.size]):
        block = []
        for part, own, of_action in zip(parts, state, action, strict=True):
            inside = np.searchsorted(part.pair_state, np.searchsorted(own, [begin, end]))
            block.append(_groups_of(part, slice(*inside.tolist()), own, of_action, with_prob=with_prob))
        yield concatenate(block)


def _groups_of(counts: Counts, inside: slice, state: Ints, action: Ints, *, with_prob: bool) -> Groups:
    """Groups of the pairs ``inside`` of ``counts``; ``state`` and ``action`` are the common indices of its labels."""
    ptr = counts.outcome_ptr[inside.start : inside.stop + 1]
    pair = inside.start + np.concatenate([np.arange(ptr.size - 1), owner_of(ptr)])
    prob = counts.baseline_prob[pair] if with_prob and counts.baseline_prob is not None else None
    outcomes = slice(int(ptr[0]), int(ptr[-1]))
    return Groups(
        state=state[counts.pair_state[pair]],
        action=action[counts.pair_action[pair]],
        outcome=np.concatenate([np.full(ptr.size - 1, -1), state[counts.outcome_state[outcomes]]]),
        count=np.concatenate([counts.terminated_count[inside], counts.outcome_count[outcomes]]),
        prob_min=prob,
        prob_max=prob,
    )


def _merged_origin(parts: Sequence[Counts]) -> Origin | None:
    origins = [part.origin for part in parts if part.origin is not None]
    if len(origins) < len(parts):
        return None
    return Origin(
        columns=origins[0].columns,
        inputs=tuple(file for origin in origins for file in origin.inputs),
        open_ends=np.sort(np.concatenate([origin.open_ends for origin in origins])),
        late_starts=np.sort(np.concatenate([origin.late_starts for origin in origins])),
    )


def _merged_notes(parts: Sequence[Counts], n_dropped: int, *, with_prob: bool) -> tuple[str, ...]:
    """Notes of all parts, each once; the note on dropped rows gives their total number."""
    notes: dict[str, None] = {}
    for part in parts:
        own = dropped_note(part.n_dropped) if part.n_dropped else None
        notes |= dict.fromkeys(dropped_note(n_dropped) if note == own else note for note in part.notes)
    if not with_prob and any(part.baseline_prob is not None for part in parts):
        notes["baseline_prob is known in only a part of the data and is not used"] = None
    return tuple(notes)


def _title(counts: Counts) -> str:
    """Name of counts in messages."""
    return "counts in memory" if counts.origin is None else f"the counts of {_files(counts.origin)}"


def _files(origin: Origin) -> str:
    if not origin.inputs:
        return "unnamed files"
    more = len(origin.inputs) - 1
    return origin.inputs[0].name + (f" (and {more} more)" if more else "")


def _as(known: str, name: str) -> str:
    return "" if known == name else f" as {known}"
