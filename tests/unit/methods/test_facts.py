"""The table of methods: complete, light, and true of the functions that it names."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bettersafe import methods
from bettersafe.envs.random_mdp import garnet, mixed_policy
from bettersafe.envs.tabular import sample_episodes
from bettersafe.errors import ParameterError
from bettersafe.logs.dataset import in_vocabulary, split
from bettersafe.methods.b_opt import b_opt
from bettersafe.methods.facts import METHODS, facts_of
from bettersafe.methods.h_opt import h_opt
from bettersafe.model import estimate_model
from bettersafe.posterior.judge import Question
from bettersafe.posterior.outcomes import gather_outcomes


def test_rows_are_complete():
    for name, facts in METHODS.items():
        assert facts.name == name == facts.title.lower()
        assert facts.sentence[0].islower()
        assert not facts.sentence.endswith(".")
        parameters = inspect.signature(facts.load()).parameters
        assert ("epsilon" in parameters) == facts.budget
        assert (list(parameters)[:2] == ["model", "baseline"]) == facts.one_model
        assert ("max_rounds" in parameters) >= facts.per_state


def test_the_table_loads_no_method_and_no_numpy():
    script = "import sys, bettersafe.methods as m; assert m.METHODS; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "scipy", "pyarrow"} & set(loaded)
    assert not [
        name for name in loaded if name.startswith("bettersafe.methods.") and name != "bettersafe.methods.facts"
    ]


def test_no_method_imports_the_table():
    """It names them all, so that would be a cycle, which the rule on imports can't see: the table imports by name."""
    for path in Path(methods.__file__).parent.glob("[a-z]*.py"):
        assert not re.search(r"^from bettersafe\.methods(\.facts)? import", path.read_text("utf-8"), re.MULTILINE), path


def test_methods_that_choose_among_candidates_are_not_made_from_one_model():
    for name in ("b-opt", "h-opt"):
        with pytest.raises(ParameterError, match=f"call bettersafe.{name.replace('-', '_')}"):
            METHODS[name].make(None, None, preference=[1.0])


def test_a_method_of_another_version_is_known_by_its_name():
    facts = facts_of("x-opt")
    assert (facts.title, facts.budget, facts.posterior) == ("x-opt", False, False)


@pytest.mark.parametrize("name", [name for name, facts in METHODS.items() if facts.one_model])
@pytest.mark.parametrize("engine", ["auto", "native", "highs"])
def test_methods_of_one_model_are_made_alike(name, engine):
    rng = np.random.default_rng(3)
    world = garnet(rng)
    baseline = mixed_policy(rng, np.full((30, 4), 0.25), 0.5)
    model = estimate_model(sample_episodes(world, baseline, 50, rng))
    rounds = []
    found = METHODS[name].make(
        model, baseline, preference=[1.0, 0.0], epsilon=0.5, engine=engine, max_rounds=3, progress=rounds.append
    )
    assert found.method == name
    assert found.epsilon == (0.5 if METHODS[name].budget else np.inf)
    assert rounds


@pytest.mark.parametrize("name", METHODS)
def test_declared_states_and_actions_change_no_policy(name):
    """A log with states and actions that were never visited, by every method: the policy is the same to the bit, and elsewhere it is
    the baseline that was given. B-OPT divides the visits of every action at random, so more actions change its random numbers.
    """
    rng = np.random.default_rng(3)
    world = garnet(rng, n_states=12, n_actions=3)
    baseline = mixed_policy(rng, np.full((12, 3), 1.0 / 3.0), 0.5)
    data = sample_episodes(world, baseline, 60, rng)
    states, actions = np.arange(-7, 25), np.arange(3 if METHODS[name].posterior else 5)
    own = np.searchsorted(states, data.state_labels)
    given = rng.dirichlet(np.ones(actions.size), size=states.size)
    given[own] = np.hstack([baseline, np.zeros((12, actions.size - 3))])

    def made(log, table):
        facts = METHODS[name]
        if facts.episodes:
            return h_opt(*split(log, (0.5, 0.5), 0), table, preference=[1.0, 1.0], selection="paper").improvement.policy
        model = estimate_model(log, baseline=table)
        if facts.posterior:
            question = Question(form="linearised")
            return b_opt(
                gather_outcomes(log), model, table, preference=[1.0, 0.0], question=question
            ).improvement.policy
        return facts.make(model, table, preference=[1.0, 0.0], epsilon=0.5).policy

    plain, wide = made(data, baseline), made(in_vocabulary(data, states, actions), given)
    assert np.array_equal(wide[own][:, :3], plain)
    assert not np.any(wide[own][:, 3:])
    assert np.array_equal(np.delete(wide, own, axis=0), np.delete(given, own, axis=0))
    assert name == "h-opt" or np.any(plain != baseline)
