"""The instances published with the paper's code: P̂, R, C, π_b and the error table as they are.

Compared are the optima of every state in every round and the final returns, not raw policies: where Q ties, the
published solver returns the centre of the optimal face.
"""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.mdp.mdp import dense_mdp
from bettersafe.mdp.programs import Programs, solve
from bettersafe.mdp.values import expected_return, policy_values
from bettersafe.methods.s_opt import adv_linearized, linearized, s_opt
from bettersafe.model import Model, error_bound_q
from places import FIXTURES

AGENTS = ("linearized", "adv_linearized", "s_opt")
pytestmark = pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.stem)


def load(path):
    data = np.load(path)
    mdp = dense_mdp(data["P_hat"], np.stack([data["R"], -data["C"]]), discount=0.99, initial=data["mu"])
    n_states, n_actions = data["pi_b"].shape
    model = Model(
        mdp=mdp,
        counts=np.zeros(n_states * n_actions, dtype=np.int64),
        error=data["err_delta0p1"].ravel(),
        error_kind="q",
        delta=0.1,
        unseen="end",
        state_labels=np.arange(n_states),
        action_labels=np.arange(n_actions),
        objectives=("goal", "pits"),
    )
    return data, model


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("engine", ["native", "highs"])
def test_every_state_of_every_round(path, agent, engine):
    data, model = load(path)
    mdp, baseline, preference = model.mdp, data["pi_b"], data["lam"]
    base_v, base_q = policy_values(mdp, baseline)
    advantage = base_q - base_v[:, mdp.pair_state]
    programs = Programs(
        ptr=mdp.state_ptr,
        baseline=baseline.ravel(),
        error=model.error if agent == "s_opt" else np.zeros(mdp.n_pairs),
        rows=advantage[:0] if agent == "linearized" else advantage,
        epsilon=float(data["epsilon"]) if agent == "s_opt" else np.inf,
    )
    policies = [baseline, *data[f"pi_iter_{agent}"]]
    for step in range(int(data[f"n_steps_{agent}"])):
        _, q = policy_values(mdp, policies[step])
        objective = preference @ q
        row = solve(programs, objective, engine=engine).policy
        ours = np.add.reduceat(row * objective, mdp.state_ptr[:-1])
        published = data[f"lp_obj_{agent}"][step]
        assert np.all(np.abs(ours - published) <= 1e-6 * np.maximum(np.abs(published), 1.0)), (
            step,
            np.abs(ours - published).max(),
        )


@pytest.mark.parametrize("agent", AGENTS)
def test_final_returns(path, agent):
    data, model = load(path)
    preference = data["lam"]
    verb = {"linearized": linearized, "adv_linearized": adv_linearized, "s_opt": s_opt}[agent]
    settings = {"epsilon": float(data["epsilon"])} if agent == "s_opt" else {}
    result = verb(model, data["pi_b"], preference=preference, max_rounds=10, **settings)
    published = data[f"J_{agent}"][0] * np.array([1.0, -1.0])
    wanted = preference > 0.0  # an objective that nobody asked for may end anywhere among ties
    assert result.policy_return[wanted] == pytest.approx(published[wanted], rel=1e-5, abs=1e-5)
    assert result.converged


def test_baseline_returns_and_errors(path):
    data, model = load(path)
    assert expected_return(model.mdp, data["pi_b"]) == pytest.approx(data["J_pi_b"][0] * [1.0, -1.0], rel=1e-9)
    n_states, n_actions = data["pi_b"].shape
    visits = np.zeros((n_states, n_actions), dtype=np.int64)
    np.add.at(visits, (data["traj_state"], data["traj_action"]), 1)
    for delta, table in ((0.1, "err_delta0p1"), (1.0, "err_delta1")):
        assert np.allclose(
            error_bound_q(visits, n_states, n_actions, 1, delta), data[table], rtol=1e-12, equal_nan=False
        )
