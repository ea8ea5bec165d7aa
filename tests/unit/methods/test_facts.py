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
from bettersafe.methods.facts import METHODS, facts_of
from bettersafe.model import estimate_model


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
