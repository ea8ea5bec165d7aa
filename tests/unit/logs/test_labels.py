"""Labels that are nearly the same, and labels that say what was done."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest

from bettersafe.logs import labels as labels_module
from bettersafe.logs.counts import count
from bettersafe.logs.dataset import Dataset, Objective
from bettersafe.logs.describe import describe
from bettersafe.logs.labels import counting_order, folded, label_problems, twins

NFC, NFD = unicodedata.normalize("NFC", "São"), unicodedata.normalize("NFD", "São")


def counts_of(states, actions):
    """Counts of one-step episodes with these labels."""
    state_labels, x = np.unique(states, return_inverse=True)
    action_labels, a = np.unique(actions, return_inverse=True)
    n = len(states)
    return count(
        Dataset(
            states=x,
            actions=a,
            rewards=np.zeros((n, 1)),
            next_states=np.full(n, -1),
            terminated=np.ones(n, dtype=bool),
            episode_ptr=np.arange(n + 1),
            state_labels=state_labels,
            action_labels=action_labels,
            episode_labels=np.arange(n),
            objectives=[Objective(name="r")],
        )
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ward A", "ward a"),
        ("Ward A", " WardA "),
        ("Ward\u00a0A", "ward A"),
        ("São", "Sao"),
        (NFC, NFD),
        ("STRASSE", "straße"),
        ("a\u200bb", "ab"),
        ("①", "1"),
    ],
)
def test_labels_that_look_alike(one, other):
    assert folded(one) == folded(other)


@pytest.mark.parametrize(("one", "other"), [("Ward A", "Ward B"), ("a-b", "ab"), ("1", "01"), ("日", "月")])
def test_labels_that_differ(one, other):
    assert folded(one) != folded(other)


def test_twins_are_counted_and_shown():
    names = [f"{word}{mark}" for word in ("low", "Mid", "high") for mark in ("", " ", "\t")]
    groups = twins(np.array([*names, "other"]))
    assert sorted(map(len, groups)) == [3, 3, 3]
    found = label_problems(counts_of([*names, "other", "LOW"], ["go", "stay"] * 5 + ["go"]))
    assert len(found) == 1
    assert "the 11 states are only 4 if case, spaces and accents are ignored" in found[0]
    assert "'LOW' = 'low' = 'low\\t'" in found[0]


def test_unicode_forms_that_print_alike_are_escaped():
    (told,) = label_problems(counts_of([NFC, NFD] * 5, ["go", "stay"] * 5))
    assert "'São' = 'Sa\\u0303o'" in told


def test_actions_are_compared_too():
    told = label_problems(counts_of(["a", "b"] * 10, ["Go", "go", "stay", "go"] * 5))
    assert any("the 3 actions are only 2" in text for text in told)


def test_numbers_have_no_twins_and_very_many_labels_are_left_alone(monkeypatch):
    assert twins(np.array([1, 2, 3])) == []
    monkeypatch.setattr(labels_module, "MOST_LABELS", 3)
    assert twins(np.array(["a", "A", "b", "B"])) == []


# ---- the action in the state


def test_a_state_that_names_its_action():
    states = ["warm | cool", "warm | idle", "cold | cool", "cold | idle"] * 10
    actions = ["cool", "idle", "cool", "idle"] * 10
    (told,) = label_problems(counts_of(states, actions))
    assert "the action leaks into the state" in told
    assert "in 100.0% of the rows" in told
    assert "'warm | cool', action 'cool'" in told or "'cold | cool', action 'cool'" in told


def test_a_state_that_names_the_action_before_is_fine():
    rng = np.random.default_rng(0)
    before, now = rng.choice(["cool", "idle"], size=(2, 200))
    assert label_problems(counts_of([f"warm_{word}" for word in before], now)) == []


def test_a_state_that_names_every_action_is_fine():
    states = ["cool 1 idle 0", "cool 0 idle 1"] * 20
    assert label_problems(counts_of(states, ["cool", "idle", "idle", "cool"] * 10)) == []


def test_a_state_that_determines_the_action():
    (told,) = label_problems(counts_of(np.arange(8).tolist() * 30, (np.arange(8) % 3).tolist() * 30))
    assert "the state determines the action in 100.0% of the rows" in told
    assert told in describe(counts_of(np.arange(8).tolist() * 30, (np.arange(8) % 3).tolist() * 30)).problems


def test_states_seen_once_and_one_usual_action_determine_nothing():
    assert label_problems(counts_of(np.arange(40), np.arange(40) % 4)) == []
    assert label_problems(counts_of(np.arange(8).tolist() * 30, [0] * 239 + [1])) == []


def test_numbers_in_labels_are_counted():
    labels = np.array(["b1", "a 10", "a 2", "7", "a", "12", "a 2 x 11", "a 2 x 3"])
    assert labels[np.argsort(counting_order(labels))].tolist() == [
        "7", "12", "a", "a 2", "a 2 x 3", "a 2 x 11", "a 10", "b1"
    ]  # fmt: skip
    assert counting_order(np.array([30, 10, 20])).tolist() == [2, 0, 1]
    assert counting_order(np.array(["١", "2"])).tolist() == [1, 0]  # digits of other scripts are letters
