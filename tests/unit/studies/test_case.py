"""One log, one baseline, and what the methods make of them: the library's."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.envs.gridworld import HORIZON, feasible_gridworld, known_rewards, quality_baseline
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.errors import ParameterError
from bettersafe.evaluation.held_out import SafetyRule
from bettersafe.logs.dataset import split
from bettersafe.mdp.values import expected_return
from bettersafe.methods.b_opt import b_opt
from bettersafe.methods.g_opt import g_opt
from bettersafe.methods.h_opt import Proposal, h_opt
from bettersafe.model import estimate_model
from bettersafe.posterior.judge import Question
from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.studies.gridworld.experiment import experiment
from study_rows import gridworld_job


def test_h_opt_is_the_librarys(small):
    settings = gridworld_job(
        "gridworld/fixed",
        methods=[
            "h-opt published dr",
            "h-opt paper dr",
            "h-opt paper-linearized dr",
            "h-opt paired dr",
            "h-opt uncovered pdis",
            "h-opt sequential dr",
            "h-opt sequential pdis",
        ],
    )
    rows = {(r["episodes"], r["preference"], r["parameter"]): r for r in experiment(settings)}
    drawn, optimum, _ = feasible_gridworld(np.random.default_rng([0, 0, 1]))
    truth, baseline = true_mdp(drawn.world), quality_baseline(optimum.policy, 0.4)
    rng = np.random.default_rng([0, 0, 1, 4, 50])
    data = sample_episodes(drawn.world, baseline, 50, rng, horizon=HORIZON)
    train, safety = split(data, (0.7, 0.3), rng)
    model = estimate_model(train, rewards=known_rewards(drawn), error_objectives=1, vocabulary="declared")
    accepted = 0
    bare = {"strict": False}
    for name, selection, more in (
        ("published dr", "published", {"comparison": "published", **bare}),
        ("paper dr", "paper", {"comparison": "empirical", **bare}),
        ("paper-linearized dr", "paper", {"comparison": "empirical", **bare}),
        ("paired dr", "best", bare),
        ("uncovered pdis", "sequential", {"estimator": "pdis", **bare}),
        ("sequential dr", "sequential", {}),
        ("sequential pdis", "sequential", {"estimator": "pdis"}),
    ):
        rule = SafetyRule(delta=0.1, zeta=np.zeros(2), **more)
        proposal = Proposal(method="linearized" if "linearized" in name else "adv-linearized")
        for text, preference in (("1,0", [1.0, 0.0]), ("0,1", [0.0, 1.0]), ("1,1", [1.0, 1.0])):
            found = h_opt(
                train,
                safety,
                baseline,
                preference=preference,
                model=model,
                rule=rule,
                selection=selection,
                proposal=proposal,
            )
            gain = expected_return(truth, found.improvement.policy) - expected_return(truth, baseline)
            assert rows[50, text, name]["improvement"] == pytest.approx(np.array(preference) @ gain, abs=1e-6)
            accepted += found.accepted
    assert accepted


def test_b_opt_and_g_opt_are_the_librarys():
    more = {"methods": ["g-opt 0.1", "b-opt"], "sizes": [50], "preferences": ["1,0", "0,1"], "draws": 60, "delta": 0.05}
    rows = {(r["method"], r["preference"]): r for r in experiment(gridworld_job("gridworld/bopt", **more))}
    assert {r["episodes"] for r in rows.values()} == {50}
    drawn, optimum, _ = feasible_gridworld(np.random.default_rng([0, 0, 1]))
    truth, baseline = true_mdp(drawn.world), quality_baseline(optimum.policy, 0.4)
    rng = np.random.default_rng([0, 0, 1, 4, 50])  # the log of the paper's studies
    data = sample_episodes(drawn.world, baseline, 50, rng, horizon=HORIZON)
    split(data, (0.7, 0.3), rng)
    seed = int(rng.integers(2**32))
    model = estimate_model(data, delta=0.05, rewards=known_rewards(drawn), error_objectives=1, vocabulary="declared")
    gains = {}
    for text, preference in (("1,0", [1.0, 0.0]), ("0,1", [0.0, 1.0])):
        question = Question(delta=0.05, draws=60, seed=seed)
        believed = b_opt(gather_outcomes(data), model, baseline, preference=preference, question=question)
        policies = {
            "g-opt": g_opt(model, baseline, preference=preference, epsilon=0.1).policy,
            "b-opt": believed.improvement.policy,
        }
        for method, policy in policies.items():
            gain = np.array(preference) @ (expected_return(truth, policy) - expected_return(truth, baseline))
            gains[method, text] = rows[method, text]["improvement"]
            assert gains[method, text] == pytest.approx(gain, abs=1e-6)
    assert gains["b-opt", "1,0"] > gains["g-opt", "1,0"] > 0.0


def test_settings_of_the_lagrangian():
    """The words of the paper's grids, and that they reach the method."""
    from bettersafe.studies.case import lagrangian_settings
    from bettersafe.studies.gridworld.plan import LAGRANGIAN_GRID

    found = [lagrangian_settings(words.split()[1:]) for words in LAGRANGIAN_GRID]
    assert [each["eta"] for each in found[:7]] == [0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0]
    assert [each["norm"] for each in found if "norm" in each] == [1.0, 50.0, 100.0]
    assert [each["tol"] for each in found if "tol" in each] == [0.001]
    assert [each["max_rounds"] for each in found if "max_rounds" in each] == [100, 500]
    with pytest.raises(ParameterError, match="setting of the Lagrangian must be one of norm, tol, max_rounds"):
        lagrangian_settings(["0.01", "rounds=3"])
    methods = ["lagrangian 0.1", "lagrangian 0.1 max_rounds=2"]
    rows = experiment(gridworld_job("gridworld/lagrangian-grid", methods=methods))
    gains = {(r["episodes"], r["preference"], r["parameter"]): r["improvement"] for r in rows}
    assert any(gains[n, p, "0.1"] != gains[n, p, "0.1 max_rounds=2"] for n, p, _ in gains)
