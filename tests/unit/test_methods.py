"""The table of methods: complete, light, and true of the functions that it names."""

from __future__ import annotations

import inspect
import subprocess
import sys

import numpy as np
import pytest

from bettersafe.envs.random_mdp import garnet, mixed_policy
from bettersafe.envs.tabular import sample_episodes
from bettersafe.methods.facts import METHODS
from bettersafe.model import estimate_model


def test_rows_are_complete():
    assert set(METHODS) == {"b-opt", "s-opt", "g-opt", "h-opt", "soft-spibb", "adv-linearized", "linearized"}
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
    assert not [name for name in loaded if name.startswith("bettersafe.methods.")]


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
