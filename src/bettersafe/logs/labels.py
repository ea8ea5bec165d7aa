"""Labels as people read them: their order, labels that differ only in case, spaces or accents, and actions named in states."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from bettersafe.logs.counts import Counts
    from bettersafe.typing import Floats, Ints, Labels

WORD = re.compile(r"[^\W_]+")
"""A word or number in a label."""

DIGITS = re.compile(r"([0-9]+)")
"""A number in a label."""

MOST_LABELS = 200_000
"""Labels beyond which they are not compared: it would take seconds."""

LONGEST = 60
"""Characters of a label that a sentence shows."""

EXAMPLES = 3
"""Groups of labels that a sentence shows."""

DETERMINED = 0.99
"""Share of rows with the usual action of their state from which the state is said to determine the action."""

NAMED_AND_TAKEN = 0.9
"""Share of rows with an action named in the label of their state from which the action is said to leak into the state."""

FEW_ROWS = 30
"""Rows below which nothing is said about determined actions."""

USUAL = 0.8
"""Share of rows that have these actions in any case, above which neither is said."""


def counting_order(labels: Labels) -> Ints:
    """Place of every label if numbers in labels are compared as numbers (visit 2 before visit 10), shape [n]."""
    if labels.dtype.kind == "U":
        # between digits, every second part is a number
        keys = [[int(part) if i % 2 else part for i, part in enumerate(DIGITS.split(each))] for each in labels.tolist()]
        order = np.array(sorted(range(labels.size), key=keys.__getitem__), dtype=np.int64)
    else:
        order = np.argsort(labels, kind="stable")
    place = np.empty(labels.size, dtype=np.int64)
    place[order] = np.arange(labels.size)
    return place


def folded(label: str) -> str:
    """Label without case, spaces, accents and invisible characters; NFC and NFD forms are equal."""
    if label.isascii():
        return "".join(label.casefold().split())
    apart = unicodedata.normalize("NFKD", label.casefold())
    return "".join(c for c in apart if not c.isspace() and unicodedata.category(c) not in ("Mn", "Cf"))


def twins(labels: Labels) -> list[tuple[str, ...]]:
    """Groups of labels that differ only in case, spaces or accents, largest first; empty for integers and very many labels."""
    if labels.dtype.kind != "U" or labels.size > MOST_LABELS:
        return []
    groups: dict[str, list[str]] = {}
    for label in labels.tolist():
        groups.setdefault(folded(label), []).append(label)
    return sorted((tuple(group) for group in groups.values() if len(group) > 1), key=len, reverse=True)


def label_problems(counts: Counts) -> list[str]:
    """Sentences, without a full stop, about labels and about actions that leak into the state."""
    found = []
    for what, labels in (("state", counts.state_labels), ("action", counts.action_labels)):
        groups = twins(labels)
        if groups:
            left = labels.size - sum(len(group) - 1 for group in groups)
            examples = "; ".join(" = ".join(map(_shown, _plain_first(group)[:EXAMPLES])) for group in groups[:EXAMPLES])
            found.append(
                f"the {labels.size} {what}s are only {left} if case, spaces and accents are ignored, for example {examples}."
                " Different labels are different " + what + "s: write each in one way"
            )
    return found + _leaks(counts)


def _plain_first(group: tuple[str, ...]) -> list[str]:
    return sorted(group, key=lambda label: (len(label), not label.isascii(), label))


def _shown(label: str) -> str:
    """Label in quotes; characters that look like others or like nothing are escaped."""
    cut = label if len(label) <= LONGEST else f"{label[:LONGEST]}…"
    return f"'{cut}'" if unicodedata.is_normalized("NFC", cut) and cut.isprintable() else ascii(cut)


def _leaks(counts: Counts) -> list[str]:
    """A sentence if the state determines the action nearly always, or names it."""
    per_action = np.bincount(counts.pair_action, weights=counts.pair_count, minlength=counts.n_actions)
    total = float(per_action.sum())
    if counts.n_actions < 2 or not total:
        return []
    usual = per_action / total
    named = _named(counts, usual)
    if named:
        return [named]
    per_state = np.bincount(counts.pair_state, weights=counts.pair_count, minlength=counts.n_states)
    most = np.zeros(counts.n_states)
    np.maximum.at(most, counts.pair_state, counts.pair_count)
    again = per_state > 1  # a state seen once determines its action in any case
    rows = float(per_state[again].sum())
    if rows < max(0.5 * total, FEW_ROWS) or usual.max() > USUAL or most[again].sum() < DETERMINED * rows:
        return []
    return [
        f"the state determines the action in {most[again].sum() / rows:.1%} of the rows: either the baseline hardly ever varies, or the"
        " state holds the action. Nothing can be learned about other actions"
    ]


def _named(counts: Counts, usual: Floats) -> str:
    """A sentence if the labels of states contain the action that was taken in them; empty if not."""
    labels = counts.state_labels
    if labels.dtype.kind != "U" or labels.size * counts.n_actions > MOST_LABELS:
        return ""
    words = [_words(str(label)) for label in counts.action_labels.tolist()]
    texts = [_words(label) for label in labels.tolist()]
    contains = np.array([[bool(word.strip()) and word in text for word in words] for text in texts])
    per_state = np.bincount(counts.pair_state, weights=counts.pair_count, minlength=counts.n_states)
    naming = contains.any(axis=1)
    rows = float(per_state[naming].sum())
    taken = contains[counts.pair_state, counts.pair_action]
    agreeing = float(counts.pair_count[taken].sum())
    by_chance = float(per_state @ (contains @ usual))
    if (
        rows < max(0.1 * float(per_state.sum()), FEW_ROWS)
        or agreeing < NAMED_AND_TAKEN * rows
        or by_chance > USUAL * rows
    ):
        return ""
    p = int(np.flatnonzero(taken)[np.argmax(counts.pair_count[taken])])
    return (
        f"the action leaks into the state: where the label of a state names an action, it is the one that was taken in"
        f" {agreeing / rows:.1%} of the rows (state {_shown(str(labels[counts.pair_state[p]]))}, action"
        f" {_shown(str(counts.action_labels[counts.pair_action[p]]))}). A state must hold only what is known before the decision"
    )


def _words(label: str) -> str:
    """Words and numbers of a label, separated and enclosed by spaces."""
    return " ".join(["", *WORD.findall(label.casefold()), ""])
