"""Off-policy estimates: closed forms, published values, and their diagnostics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bettersafe.envs.random_mdp import garnet
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.errors import DataError, ParameterError, PolicyError
from bettersafe.evaluation.evaluate import comparison_rows, evaluate_many, evaluate_policy, evaluation_rows, fold_seed
from bettersafe.evaluation.facts import ESTIMATORS
from bettersafe.logs.dataset import Dataset, Objective, split, take_episodes
from bettersafe.mdp.values import expected_return
from bettersafe.model import Model, estimate_model
from evaluation_cases import policies, truth_model, two_state_case, two_state_world
from places import FIXTURES


def test_target_equal_to_the_baseline_gives_the_mean_return():
    world, (_, baseline) = two_state_world(), policies()
    data = sample_episodes(world, baseline, 200, np.random.default_rng(0))
    train, test = split(data, (0.5, 0.5), np.random.default_rng(1))
    results = evaluate_many(test, baseline, baseline, model=estimate_model(train))
    time = np.concatenate([np.arange(n) for n in np.diff(test.episode_ptr)])
    plain = np.array([np.add.reduceat(0.9**time * test.rewards[:, 0], test.episode_ptr[:-1]).mean(),
                      np.add.reduceat(0.95**time * test.rewards[:, 1], test.episode_ptr[:-1]).mean()])  # fmt: skip
    for estimator in ("is", "pdis", "wis", "cwpdis"):
        assert results[estimator].value == pytest.approx(plain)
        assert results[estimator].ess == pytest.approx(100)
    # weights are 1: the two doubly robust ones are the same
    assert results["wdr"].value == pytest.approx(results["dr"].value)
    assert results["wdr"].per_trajectory == pytest.approx(results["dr"].per_trajectory)


def test_unbiased_and_the_true_model_helps():
    """IS, PDIS and DR within 5 standard errors of the truth; DR with the true model has the least variance."""
    world, (target, baseline) = two_state_world(), policies()
    data = sample_episodes(world, baseline, 40_000, np.random.default_rng(2))
    true = expected_return(true_mdp(world), target)
    results = evaluate_many(data, target, baseline, model=truth_model(world))
    for estimator in ("is", "pdis", "wis", "cwpdis", "dr", "wdr"):
        result = results[estimator]
        assert np.all(np.abs(result.value - true) <= 5.0 * result.standard_error), estimator
    spread = {e: results[e].per_trajectory.var(axis=0) for e in ("is", "pdis", "dr")}
    assert np.all(spread["dr"] < spread["pdis"])
    assert np.all(spread["pdis"] < spread["is"])
    assert results["model"].value == pytest.approx(true)
    assert np.all(np.isnan(results["model"].standard_error))


def test_truncation_and_termination_are_told_apart():
    """Episodes cut off after one step: DR with the true model adds the value of where they were left."""
    world, (target, baseline) = two_state_world(), policies()
    data = sample_episodes(world, baseline, 60_000, np.random.default_rng(3), horizon=2)
    true = expected_return(true_mdp(world), target)
    result = evaluate_policy(data, target, baseline, estimator="dr", model=truth_model(world))
    assert result.truncated_episodes > 10_000
    assert np.all(np.abs(result.value - true) <= 5.0 * result.standard_error)
    short = evaluate_policy(data, target, baseline, estimator="pdis")
    assert np.any(np.abs(short.value - true) > 5.0 * short.standard_error)  # it misses what came after, and says so
    assert "truncated" in short.trust


@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.stem)
def test_published_estimates(path):
    """IS and PDIS of the published code; its other estimators are wrong (METHODS.md 3)."""
    data = np.load(path)
    episode, n_states = data["traj_episode"], data["pi_b"].shape[0]
    ptr = np.concatenate([[0], np.flatnonzero(np.diff(episode)) + 1, [episode.size]])
    last = np.zeros(episode.size, dtype=bool)
    last[ptr[1:] - 1] = True
    goal = data["traj_next_state"] == int(data["goal_state"])
    dataset = Dataset(
        states=data["traj_state"], actions=data["traj_action"], rewards=np.column_stack([data["traj_reward"], -data["traj_cost"]]),
        next_states=np.where(goal, -1, data["traj_next_state"]), terminated=goal & last, episode_ptr=ptr,
        state_labels=np.arange(n_states), action_labels=np.arange(4), episode_labels=np.arange(ptr.size - 1),
        objectives=(Objective(name="goal"), Objective(name="pits")),
    )  # fmt: skip
    results = evaluate_many(dataset, data["pi_s_opt"], data["pi_b"], estimators=("is", "pdis"))
    for ours, theirs in (("is", "ope_importance_sampling"), ("pdis", "ope_per_decision_IS")):
        # the published policy has entries of −1e-8 (its solver's noise), which are 0 here: returns of 1000 differ by 1e-3
        assert np.allclose(results[ours].per_trajectory[:, 0], data[theirs][0], rtol=1e-6, atol=1e-3)
        assert np.allclose(-results[ours].per_trajectory[:, 1], data[theirs][1], rtol=1e-6, atol=1e-3)


def test_diagnostics_and_errors():
    world, (target, baseline) = two_state_world(), policies()
    data = sample_episodes(world, baseline, 300, np.random.default_rng(5))
    sharp = np.zeros((4, 3))
    sharp[:, 0] = 1.0
    result = evaluate_policy(data, sharp, baseline, estimator="is")
    assert result.ess < 150
    assert result.n_episodes == 300
    few = evaluate_policy(take_episodes(data, np.arange(5)), sharp, baseline, estimator="wis")
    assert few.trust.startswith("Do not rely on it")
    assert "Can be used" in evaluate_policy(data, baseline, baseline, estimator="pdis").trust
    assert (
        "own estimate" in evaluate_policy(data, baseline, baseline, estimator="model", model=truth_model(world)).trust
    )
    clipped = evaluate_policy(data, target, baseline, estimator="dr", model=truth_model(world), clip=([-1, -1], [1, 1]))
    assert "clipped" in clipped.trust
    assert np.all(np.abs(clipped.per_trajectory) <= 1.0)

    lacking = baseline.copy()
    lacking[2] = [0.0, 0.5, 0.5]
    with pytest.raises(PolicyError, match="action '0' in state '2', which the baseline never plays"):
        evaluate_policy(data, target, lacking, estimator="is")
    with pytest.raises(ParameterError, match="needs a model"):
        evaluate_policy(data, target, baseline, estimator="dr")
    with pytest.raises(ParameterError, match="estimator must be one of"):
        evaluate_policy(data, target, baseline, estimator="drr")
    assert set(evaluate_many(data, target, baseline, model=truth_model(world))) == set(ESTIMATORS)


def test_unsupported_pairs_are_counted_and_may_be_dropped():
    world, (target, baseline) = two_state_world(), policies()
    data = sample_episodes(world, baseline, 400, np.random.default_rng(6))
    model = truth_model(world)
    blind = Model(
        **{**vars(model), "counts": np.where((model.mdp.pair_state == 1) & (model.mdp.pair_action == 2), 0, 1)}
    )
    result = evaluate_policy(data, target, baseline, estimator="dr", model=blind)
    assert result.unsupported_episodes > 0
    visits = np.mean(data.states == 1)
    assert result.unsupported_mass == pytest.approx(visits * target[1, 2])
    dropped = evaluate_policy(data, target, baseline, estimator="dr", model=blind, drop_unsupported=True)
    assert dropped.n_episodes == 400 - result.unsupported_episodes
    assert "dropped" in dropped.biased


def test_weights_that_do_not_average_one_are_doubted():
    _world, baseline, target, data = two_state_case(5, episodes=2000)
    right = evaluate_policy(data, target, baseline, estimator="pdis")
    assert right.mean_weight == pytest.approx(1.0, abs=0.2)
    skewed = baseline.copy()
    skewed[:, 0] += 0.5
    skewed /= skewed.sum(axis=1, keepdims=True)
    wrong = evaluate_policy(data, target, skewed, estimator="pdis")
    assert "the mean weight is" in wrong.trust
    assert "average" not in right.trust


def test_intervals_cover_and_rows_speak_the_users_sign():
    _world, baseline, target, data = two_state_case(6, episodes=200)
    results = evaluate_many(data, target, baseline, folds=3)
    low, high = results["dr"].interval(0.1)
    assert np.all((low < results["dr"].value) & (results["dr"].value < high))
    assert np.all(np.isnan(results["model"].interval(0.1)[0]))
    with pytest.raises(ParameterError, match="approximate"):
        results["dr"].interval(0.1, method="betting")
    cost = tuple(replace(objective, lower_is_better=True) for objective in data.objectives)
    own = {name: (result.value, *result.interval(0.1)) for name, result in results.items()}
    ours, theirs = (
        evaluation_rows(results, objectives, baseline=own, delta=0.1) for objectives in (data.objectives, cost)
    )
    for row, flipped in zip(ours, theirs, strict=True):
        assert flipped["value"] == -row["value"]
        assert (flipped["baseline_value"], row["baseline_value"]) == (flipped["value"], row["value"])
        if row["estimator"] != "model":
            assert (flipped["low"], flipped["high"]) == (-row["high"], -row["low"])
            assert flipped["low"] <= flipped["value"] <= flipped["high"]


def steps_to_go(mdp, policy, horizon, discount):
    """v_h and q_h for h = 0, …, H, by plain recursion over dense tables, from the definition."""
    table = mdp.transition.toarray().reshape(mdp.n_states, mdp.n_actions, -1)
    reward = mdp.reward.reshape(-1, mdp.n_states, mdp.n_actions)
    v, q = [np.zeros((len(discount), mdp.n_states))], [np.zeros_like(reward)]
    for _ in range(horizon):
        q.append(reward + np.array(discount)[:, None, None] * np.einsum("xay,ky->kxa", table, v[-1]))
        v.append(np.einsum("xa,kxa->kx", policy, q[-1]))
    return v, q


@pytest.mark.parametrize("cut", [3, 5, None])
@pytest.mark.parametrize("horizon", [1, 4])
def test_estimates_up_to_a_step_by_plain_loops(horizon, cut):
    """is, pdis and dr of every episode from their definitions; logging may stop before the horizon, at it, or not at all."""
    world, (target, baseline) = two_state_world(), policies()
    discount = (0.9, 1.0)
    objectives = tuple(replace(o, discount=g) for o, g in zip(world.objectives, discount, strict=True))
    data = replace(sample_episodes(world, baseline, 80, np.random.default_rng(3), horizon=cut), objectives=objectives)
    truth = truth_model(world)
    model = replace(truth, horizon=horizon, discount=np.array(discount))
    found = evaluate_many(data, target, baseline, model=model, horizon=horizon)
    v, q = steps_to_go(truth.mdp, target, horizon, discount)
    expected = {name: np.zeros((80, 2)) for name in ("is", "pdis", "dr")}
    missing = 0
    for i in range(80):
        rows = np.arange(data.episode_ptr[i], min(data.episode_ptr[i + 1], data.episode_ptr[i] + horizon))
        x, a = data.states[rows], data.actions[rows]
        ratio = target[x, a] / baseline[x, a]
        stopped = rows.size < horizon and not data.terminated[rows[-1]]
        missing += stopped
        for k, gamma in enumerate(discount):
            power = gamma ** np.arange(rows.size)
            expected["is"][i, k] = np.prod(ratio) * (power @ data.rewards[rows, k])
            expected["pdis"][i, k] = (power * np.cumprod(ratio)) @ data.rewards[rows, k]
            rest = v[horizon - rows.size][k, data.next_states[rows[-1]]] if stopped else 0.0
            for t in reversed(range(rows.size)):
                to_go = horizon - t
                residual = data.rewards[rows[t], k] + gamma * rest - q[to_go][k, x[t], a[t]]
                rest = v[to_go][k, x[t]] + ratio[t] * residual
            expected["dr"][i, k] = rest
    for name, terms in expected.items():
        assert found[name].per_trajectory == pytest.approx(terms), name
        assert found[name].truncated_episodes == missing
        assert found[name].complete is (not missing or name == "dr")
    assert found["model"].value == pytest.approx(v[horizon] @ truth.mdp.initial)
    assert found["is"].longest == min(horizon, int(np.max(np.diff(data.episode_ptr))))
    assert (missing > 0) == (cut is not None and cut < horizon)


def test_estimates_up_to_a_step_agree_with_simulated_returns():
    """A world that never ends, logged for 12 steps: the target's first 8 steps, simulated, within 5 standard errors."""
    world, (target, baseline) = garnet(5, n_states=4, n_actions=3, end=0.0, discount=1.0), policies()
    rng = np.random.default_rng(0)
    simulated = sample_episodes(world, target, 20_000, rng, horizon=8)
    returns = np.add.reduceat(simulated.rewards, simulated.episode_ptr[:-1], axis=0)
    truth, spread = returns.mean(axis=0), returns.std(axis=0, ddof=1) / np.sqrt(len(returns))
    assert np.all(np.abs(expected_return(true_mdp(world), target, horizon=8) - truth) <= 5.0 * spread)
    data = sample_episodes(world, baseline, 4_000, rng, horizon=12)
    found = evaluate_many(data, target, baseline, folds=3, horizon=8)
    for name in ("is", "pdis", "cwpdis", "dr", "wdr"):
        error = np.hypot(found[name].standard_error, spread)
        assert np.all(np.abs(found[name].value - truth) <= 5.0 * error), name
        assert found[name].complete
    assert np.all(found["dr"].standard_error < 0.5 * found["pdis"].standard_error)
    assert found["model"].value == pytest.approx(truth, rel=0.02)
    with pytest.raises(DataError, match="needs episodes that end, and 4,000 of 4,000 are cut off"):
        evaluate_many(data, target, baseline, folds=3)


def test_a_model_needs_the_horizon_of_the_returns():
    _world, baseline, target, data = two_state_case(6, episodes=40)
    with pytest.raises(ParameterError, match="horizon of 3 steps, but the model of no limit"):
        evaluate_policy(data, target, baseline, estimator="dr", model=estimate_model(data), horizon=3)


def test_both_returns_of_a_row_are_of_the_same_steps():
    """Where logging stops, dr is of all steps, for the baseline too; without a model both are of the logged steps."""
    world, (target, baseline) = two_state_world(), policies()
    data = sample_episodes(world, baseline, 300, np.random.default_rng(3), horizon=2)
    rows = {
        (row["estimator"], row["objective"]): row for row in comparison_rows(data, target, baseline, folds=3, delta=0.1)
    }
    own = evaluate_many(data, baseline, baseline, folds=3, rng=fold_seed(0))
    for k, name in enumerate(("a", "b")):
        logged = rows["logged", name]
        assert (logged["complete"], logged["longest_episode"], logged["horizon"]) == (False, 2, None)
        assert logged["value"] == logged["baseline_value"] == own["is"].value[k]
        for estimator in ("is", "pdis", "wis", "cwpdis"):
            assert rows[estimator, name]["complete"] is False
            assert rows[estimator, name]["baseline_value"] == logged["value"]
        for estimator in ("dr", "wdr", "model"):
            assert rows[estimator, name]["complete"] is True
            assert rows[estimator, name]["baseline_value"] == own[estimator].value[k]
    whole = comparison_rows(data, target, baseline, folds=3, delta=0.1, horizon=2)
    assert {(row["complete"], row["horizon"], row["truncated_episodes"]) for row in whole} == {(True, 2, 0)}


def test_a_fold_without_an_end_takes_the_baselines_values_there():
    """Action 0 ended once, in the third episode: a model of the other two can't say that the target ends."""
    fields = {
        "states": [0] * 8, "actions": [0, 1, 0, 1, 0, 0, 0, 0], "rewards": [[1.0]] * 8,
        "next_states": [0, -1, 0, -1, 0, 0, 0, -1], "terminated": [False, True, False, True, False, False, False, True],
        "episode_ptr": [0, 2, 4, 8], "state_labels": [0], "action_labels": [0, 1], "episode_labels": [0, 1, 2],
        "objectives": (Objective(name="r", discount=1.0),),
    }  # fmt: skip
    data = Dataset(**fields)
    found = evaluate_many(data, [[1.0, 0.0]], [[0.75, 0.25]], folds=3)
    assert found["dr"].endless == 1
    assert "from 1 states the policy never reaches an end in the model's data" in found["dr"].trust
    assert "never reaches" not in found["is"].trust
    assert np.all(np.isfinite(found["dr"].per_trajectory))
