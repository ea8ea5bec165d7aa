"""Errors: what each also is, what it carries, and the sentence about an argument of the wrong type."""

from __future__ import annotations

import copy
import dataclasses
import inspect

import numpy as np
import pytest

from bettersafe import errors
from bettersafe.errors import BettersafeError, ParameterError, WrongTypeError
from bettersafe.logs.counts import Counts, count
from bettersafe.logs.dataset import Columns, Dataset, Objective
from bettersafe.logs.source import count_files
from bettersafe.mdp.constrained import optimal_policy
from bettersafe.mdp.mdp import MDP
from bettersafe.mdp.values import occupancy
from bettersafe.model import Model
from bettersafe.typing import generator

BASES = {
    "DataError": ValueError,
    "PolicyError": ValueError,
    "ParameterError": ValueError,
    "WrongTypeError": TypeError,
    "NoSolutionError": RuntimeError,
    "UnsolvedError": RuntimeError,
    "RunError": RuntimeError,
    "MemoryLimitError": MemoryError,
}


def test_every_error_is_also_one_of_pythons_own():
    found = {name: kind for name, kind in inspect.getmembers(errors, inspect.isclass) if name.endswith("Error")}
    assert found.keys() - {"BettersafeError"} == BASES.keys()
    for name, base in BASES.items():
        error = found[name]("What is wrong.", setting="epsilon")
        assert isinstance(error, BettersafeError)
        assert isinstance(error, base)
        assert (str(error), error.setting) == ("What is wrong.", "epsilon")
        assert found[name]("What is wrong.").setting is None
        other = copy.copy(error)  # as on the way from a worker process
        assert (type(other), str(other), other.setting) == (type(error), str(error), "epsilon")


@pytest.mark.parametrize(
    ("value", "kinds", "sentence"),
    [
        (Columns(), (Counts,), "counts must be Counts; got Columns. Get it from count(log) or count_files(path)."),
        (None, (Model,), "counts must be a Model; got None. Get it from estimate_model(log)."),
        (Model, (MDP,), "counts must be an MDP; got the class Model. Get it from model.mdp, true_mdp(world) or dense_mdp."),
        ("log.csv", (int, float), "counts must be an int or a float; got 'log.csv'."),
        (np.zeros(2), (str,), "counts must be a str; got an ndarray."),
        ("x" * 99, (int,), f"counts must be an int; got '{'x' * 55}...'."),
    ],
)  # fmt: skip
def test_wrong_types_are_told_in_one_sentence(value, kinds, sentence):
    with pytest.raises(WrongTypeError) as told:
        errors.check_type("counts", value, *kinds)
    assert str(told.value) == sentence


@pytest.mark.parametrize(
    ("kind", "value", "plain"),
    [
        ("text", np.str_("a"), "a"),
        ("number", np.float32(0.5), 0.5),
        ("number", 3, 3.0),
        ("number", 10**20, 1e20),
        ("whole number", np.int64(3), 3),
        ("true or false", np.bool_(True), True),
        ("pair of numbers", np.array([0, 1]), (0.0, 1.0)),
        ("list of texts", ["a", np.str_("b")], ("a", "b")),
        ("table of whole numbers", {np.str_("a"): np.int8(2)}, {"a": 2}),
    ],
)
def test_values_of_a_kind_become_plain(kind, value, plain):
    found = errors.as_kind("x", value, kind)
    assert found == plain
    assert repr(found) == repr(plain)


@pytest.mark.parametrize(
    ("kind", "value", "sentence"),
    [
        ("text", 1, "x must be text; got 1."),
        ("number", True, "x must be a number; got True."),
        ("number", 1j, "x must be a number; got a complex."),
        ("number", np.ones(2), "x must be a number; got an ndarray."),
        ("number", 10**400, "x is too large; got an integer of 1329 bits."),
        ("whole number", 3.0, "x must be a whole number; got 3.0."),
        ("whole number", True, "x must be a whole number; got True."),
        ("whole number", 10**400, "x must be less than 2^63; got an integer of 1329 bits."),
        ("true or false", 1, "x must be true or false; got 1."),
        ("pair of numbers", 1.5, "x must be a pair of numbers; got 1.5."),
        ("pair of numbers", (1, "a"), "x must be a number; got 'a'."),
        ("list of texts", "ab", "x must be a list of texts; got 'ab'."),
        ("list of texts", ["a", 1], "x[1] must be text; got 1."),
        ("table of whole numbers", {"a": 0.5}, "a in x must be a whole number; got 0.5."),
        ("table of whole numbers", {1: 5}, "a name in x must be text; got 1."),
    ],
)
def test_values_of_another_kind_are_told_in_one_sentence(kind, value, sentence):
    with pytest.raises(BettersafeError) as told:
        errors.as_kind("x", value, kind, setting="seed")
    assert str(told.value) == sentence
    assert told.value.setting == "seed"


def test_lists_paths_logs_and_numbers():
    errors.check_types("objectives", [Objective(name="gain")], Objective)
    errors.check_paths("path", ["a", "b"])
    for check, wrong, words in (
        (lambda v: errors.check_types("objectives", v, Objective), ["gain"], r"objectives\[0\] must be an Objective; got 'gain'"),
        (lambda v: errors.check_types("objectives", v, Objective), Objective(name="gain"), "objectives must be a list; got an Objective"),
        (lambda v: errors.check_path("path", v), 3, "path must be a path; got 3"),
        (lambda v: errors.check_paths("path", v), ["a", None], "path must be a path; got None"),
        (lambda v: errors.check_log("log", v), "log.csv", "log must be a log: a Dataset or Episodes; got 'log.csv'"),
        (lambda v: errors.as_numbers("the policy", v), "uniform", "the policy must be an array of numbers; got 'uniform'"),
        (lambda v: errors.as_numbers("the policy", v), Columns(), "the policy must be an array of numbers; got Columns"),
        (generator, None, "rng must be an int or a Generator; got None"),
        (generator, 0.5, "rng must be an int or a Generator; got 0.5"),
    ):  # fmt: skip
        with pytest.raises(WrongTypeError, match=words):
            check(wrong)
    with pytest.raises(ParameterError, match="rng must be a seed of 0 or more"):
        generator(-1)


def test_integers():
    for right in (2, np.int64(2), np.uint8(3)):
        errors.check_integer("k", right, least=2)
    for wrong in (2.0, True, "2", None, np.float64(2.0)):
        with pytest.raises(WrongTypeError, match=r"^k must be an integer; got .*\.$"):
            errors.check_integer("k", wrong, least=1)
    with pytest.raises(ParameterError, match=r"^k must be at least 2; got 1\.$"):
        errors.check_integer("k", 1, least=2)


def test_a_seed_or_a_generator():
    first = np.random.default_rng(7).random(3)
    assert np.array_equal(generator(7).random(3), first)
    assert np.array_equal(generator(np.int64(7)).random(3), first)
    mine = np.random.default_rng(7)
    assert generator(mine) is mine


OBJECTS = (None, "x", object(), {"a": 1}, [["a"], ["b", "c"]])
MDP_FIELDS = {
    "n_states": 1, "n_actions": 1, "pair_state": [0], "pair_action": [0], "transition": [[0.5]], "reward": [[1.0]],
    "discount": [0.9], "initial": [1.0], "unseen_value": [[0.0]],
}  # fmt: skip
LOG_FIELDS = {
    "states": [0, 0], "actions": [0, 1], "rewards": [[0.0], [1.0]], "next_states": [0, -1], "terminated": [False, True],
    "episode_ptr": [0, 2], "state_labels": ["ill"], "action_labels": ["wait", "treat"], "episode_labels": [1],
    "objectives": [Objective(name="r")], "baseline_prob": [0.5, 0.5],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "fields"), [(MDP, MDP_FIELDS), (Dataset, LOG_FIELDS)], ids=["MDP", "Dataset"])
def test_constructors_tell_fields_that_are_no_arrays(kind, fields):
    kind(**fields)
    for name in fields:
        for value in OBJECTS:
            if value is None and name in ("unseen_value", "baseline_prob"):
                continue
            with pytest.raises(BettersafeError, match=name):
                kind(**{**fields, name: value})


def test_counts_tell_fields_that_are_no_arrays():
    counts = count(Dataset(**LOG_FIELDS))
    for name in ("pair_state", "reward_sum", "objectives"):
        for value in ("x", object(), [["a"], ["b", "c"]]):
            with pytest.raises(BettersafeError, match=name):
                dataclasses.replace(counts, **{name: value})


def test_other_arguments_of_a_wrong_kind(tmp_path):
    mdp, log = MDP(**MDP_FIELDS), tmp_path / "log.csv"
    log.write_text("episode,step,state,action,r\n0,0,a,b,1\n", encoding="utf-8")
    for call, message in (
        (lambda: occupancy(mdp, [[1.0]], k=3), "k must be an objective, from 0 to 0; got 3"),
        (lambda: optimal_policy(mdp, [1.0], start=3), r"start must have shape \[X, A\] = \[1, 1\]"),
        (
            lambda: count_files(log, objectives=[Objective(name="r")], memory_limit=3),
            "memory_limit must be a str; got 3",
        ),
    ):
        with pytest.raises(BettersafeError, match=message):
            call()
