"""Off-policy estimators: the kernel and the NumPy engine against loops written from the formulas, and closed forms."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from bettersafe import _kernel
from bettersafe.envs.tabular import World, sample_episodes, true_mdp
from bettersafe.errors import ParameterError, PolicyError
from bettersafe.evaluation import estimators
from bettersafe.evaluation.estimators import trajectory_terms
from bettersafe.evaluation.evaluate import evaluate_many, evaluate_policy, evaluation_rows
from bettersafe.evaluation.facts import ESTIMATORS
from bettersafe.logs.dataset import Dataset, Objective, split, take_episodes
from bettersafe.mdp.values import expected_return
from bettersafe.model import Model, estimate_model
from places import FIXTURES


def slow_values(ptr, log_ratio, reward, discount, v, q, tail):
    """The six estimates [6, d], by loops."""
    n, d = len(ptr) - 1, len(discount)
    rho = [np.exp(np.cumsum(log_ratio[a:b])) for a, b in pairwise(ptr)]

    def weight(i, t):
        return 1.0 if t < 0 else rho[i][min(t, len(rho[i]) - 1)]

    def share(i, t):
        total = sum(weight(j, t) for j in range(n))
        return weight(i, t) / total if total > 0.0 else 0.0

    out = np.zeros((6, d))
    for k in range(d):
        g = discount[k]
        for i in range(n):
            a, length = ptr[i], ptr[i + 1] - ptr[i]
            plain = sum(g**t * reward[a + t, k] for t in range(length))
            out[0, k] += weight(i, length - 1) * plain / n
            out[1, k] += sum(g**t * weight(i, t) * reward[a + t, k] for t in range(length)) / n
            total = sum(r[-1] for r in rho)
            out[2, k] += rho[i][-1] / total * plain if total > 0.0 else 0.0
            value = tail[i, k]
            for t in reversed(range(length)):
                value = v[a + t, k] + np.exp(log_ratio[a + t]) * (reward[a + t, k] + g * value - q[a + t, k])
            out[4, k] += value / n
            out[5, k] += g**length * share(i, length - 1) * tail[i, k]
            for t in range(length):
                out[3, k] += g**t * share(i, t) * reward[a + t, k]
                out[5, k] += g**t * (share(i, t) * (reward[a + t, k] - q[a + t, k]) + share(i, t - 1) * v[a + t, k])
    return out


def random_trajectories(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 9)), int(rng.integers(1, 4))
    lengths = rng.integers(1, 10, n)
    ptr = np.concatenate([[0], np.cumsum(lengths)])
    rows = ptr[-1]
    log_ratio = rng.normal(size=rows) * rng.choice([0.0, 0.5, 3.0])
    log_ratio[rng.random(rows) < rng.choice([0.0, 0.1, 0.5])] = -np.inf
    reward, v, q = (rng.normal(size=(rows, d)) * 10.0 ** rng.uniform(-3, 3) for _ in range(3))
    tail = rng.normal(size=(n, d)) * (rng.random((n, 1)) < 0.5)
    return ptr, log_ratio, reward, rng.uniform(0.0, 0.99, d), v, q, tail


@pytest.mark.parametrize("block", range(10))
def test_against_loops(block, monkeypatch):
    for seed in range(20 * block, 20 * (block + 1)):
        arguments = random_trajectories(seed)
        expected = slow_values(*arguments)
        scale = 1.0 + sum(float(np.abs(a).max()) for a in arguments[2:]) * np.exp(
            max(0.0, np.max(np.where(np.isfinite(arguments[1]), arguments[1], 0.0)) * 10)
        )
        monkeypatch.undo()
        native, log_weight = trajectory_terms(*arguments)
        assert np.allclose(native.mean(axis=1), expected, rtol=1e-9, atol=1e-12 * scale)
        monkeypatch.setattr(_kernel, "compiled", None)
        for cells in (estimators.PADDED_CELLS, 1, 25):  # all at once, one episode at a time, a few
            monkeypatch.setattr(estimators, "PADDED_CELLS", cells)
            plain, log_weight_2 = trajectory_terms(*arguments)
            assert np.allclose(native, plain, rtol=1e-9, atol=1e-11 * scale)
            assert np.allclose(log_weight, log_weight_2, rtol=1e-12)


def test_linearised_terms_have_the_derivative_of_the_estimate():
    """Giving trajectory i a little more weight moves the weighted estimates by its influence (term − value)/n."""
    ptr, log_ratio, reward, discount, v, q, tail = random_trajectories(3)
    log_ratio = np.where(np.isfinite(log_ratio), log_ratio, 0.3)
    found, _ = trajectory_terms(ptr, log_ratio, reward, discount, v, q, tail)
    n, copies = len(ptr) - 1, 200

    def repeated(extra):
        """Every trajectory ``copies`` times, one of them once more."""
        order = [i for i in range(n) for _ in range(copies + (i == extra))]
        rows = np.concatenate([np.arange(ptr[i], ptr[i + 1]) for i in order])
        pointer = np.concatenate([[0], np.cumsum([ptr[i + 1] - ptr[i] for i in order])])
        values, _ = trajectory_terms(pointer, log_ratio[rows], reward[rows], discount, v[rows], q[rows], tail[order])
        return values.mean(axis=1)

    base = repeated(-1)
    for i in range(n):
        influence = (repeated(i) - base) * (n * copies + 1)
        assert np.allclose(influence, found[:, i] - found.mean(axis=1), rtol=0.05, atol=0.02 * np.abs(found).max())


def two_state_world(seed=0):
    """A small random world with two objectives; episodes end with probability 0.2 or more at every step."""
    from scipy import sparse

    rng = np.random.default_rng(seed)
    n_states, n_actions = 4, 3
    table = np.zeros((n_states * n_actions, n_states + 1))
    table[:, :n_states] = rng.dirichlet(np.ones(n_states), size=n_states * n_actions) * rng.uniform(
        0.5, 0.8, (n_states * n_actions, 1)
    )
    table[:, n_states] = 1.0 - table[:, :n_states].sum(axis=1)
    outcome = sparse.csr_array(table)
    return World(
        n_states=n_states, n_actions=n_actions, n_terminals=1,
        pair_state=np.repeat(np.arange(n_states), n_actions), pair_action=np.tile(np.arange(n_actions), n_states),
        outcome=outcome, outcome_reward=rng.normal(size=(2, outcome.nnz)), initial=rng.dirichlet(np.ones(n_states)),
        objectives=(Objective(name="a", discount=0.9), Objective(name="b", discount=0.95)),
        state_labels=np.arange(n_states), action_labels=np.arange(n_actions), terminal_labels=np.array(["end"]),
    )  # fmt: skip


def policies(seed=1):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(3, 5.0), size=4), rng.dirichlet(np.full(3, 5.0), size=4)


def truth_model(world, counts=1):
    mdp = true_mdp(world)
    return Model(
        mdp=mdp, counts=np.full(mdp.n_pairs, counts), error=np.ones(mdp.n_pairs), error_kind="q", delta=0.1, unseen="end",
        state_labels=world.state_labels, action_labels=world.action_labels, objectives=("a", "b"),
    )  # fmt: skip


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
    assert "cut off" in short.trust


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


def test_extreme_weights_do_not_break_the_weighted_estimators():
    rng = np.random.default_rng(0)
    ptr = np.arange(0, 3001, 300)
    log_ratio = rng.normal(size=3000) * 3.0 + np.repeat(rng.normal(size=10), 300) * 5.0  # products far beyond e^±709
    reward = rng.random((3000, 1))
    with np.errstate(over="ignore"):
        found, log_weight = trajectory_terms(
            ptr, log_ratio, reward, np.array([0.99]), reward, reward, np.zeros((10, 1))
        )
    assert np.max(np.abs(log_weight)) > 709.0
    for name in ("wis", "cwpdis", "wdr"):
        values = found[ESTIMATORS[name].kernel_row]
        assert np.all(np.isfinite(values)), name
        assert -1.0 <= values.mean() <= 101.0


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
    assert "own opinion" in evaluate_policy(data, baseline, baseline, estimator="model", model=truth_model(world)).trust
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


def a_world(seed, *, episodes):
    """A world, its baseline, a target, and a log of it."""
    world, (target, baseline) = two_state_world(seed), policies(seed)
    return world, baseline, target, sample_episodes(world, baseline, episodes, np.random.default_rng(seed))


def test_cross_fitting_uses_each_model_only_on_the_fold_that_it_did_not_see():
    """By hand: fold i's terms from a model of the others, put together; dr is then as if evaluated fold by fold."""
    _world, baseline, target, data = a_world(3, episodes=60)
    folds = 4
    together = evaluate_policy(data, target, baseline, estimator="dr", folds=folds, rng=np.random.default_rng(5))
    parts = np.array_split(np.random.default_rng(5).permutation(data.n_episodes), folds)
    expected = np.empty_like(together.per_trajectory)
    for part in parts:
        fold = np.sort(part)
        others = np.setdiff1d(np.arange(data.n_episodes), fold)
        model = estimate_model(take_episodes(data, others), unseen="baseline", baseline=baseline)
        one = evaluate_policy(take_episodes(data, fold), target, baseline, estimator="dr", model=model)
        expected[fold] = one.per_trajectory
    assert together.per_trajectory == pytest.approx(expected)
    again = evaluate_many(data, target, baseline, folds=folds, rng=np.random.default_rng(5))
    assert np.array_equal(again["dr"].per_trajectory, together.per_trajectory)
    # wdr of the baseline itself: weights are 1, so it is dr
    same = evaluate_many(data, baseline, baseline, folds=folds)
    assert same["wdr"].value == pytest.approx(same["dr"].value)
    for settings, message in (
        ({"folds": 1}, "at least 2"),
        ({"folds": 61}, "at most the number of episodes, 60"),
        ({"folds": 3, "model": model}, "not both"),
    ):
        with pytest.raises(ParameterError, match=message):
            evaluate_policy(data, target, baseline, estimator="dr", **settings)


def test_cross_fitted_dr_is_unbiased():
    world, baseline, target, _ = a_world(4, episodes=2)
    truth = expected_return(true_mdp(world), target)
    rng = np.random.default_rng(0)
    values = np.array(
        [
            evaluate_policy(
                sample_episodes(world, baseline, 40, rng), target, baseline, estimator="dr", folds=4, rng=rng
            ).value
            for _ in range(300)
        ]
    )
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    assert np.all(np.abs(values.mean(axis=0) - truth) < 5.0 * error)  # 5 standard errors: once in a million


def test_weights_that_do_not_average_one_are_doubted():
    _world, baseline, target, data = a_world(5, episodes=2000)
    right = evaluate_policy(data, target, baseline, estimator="pdis")
    assert right.mean_weight == pytest.approx(1.0, abs=0.2)
    skewed = baseline.copy()
    skewed[:, 0] += 0.5
    skewed /= skewed.sum(axis=1, keepdims=True)
    wrong = evaluate_policy(data, target, skewed, estimator="pdis")
    assert "average" in wrong.trust
    assert "average" not in right.trust


def test_intervals_cover_and_rows_speak_the_users_sign():
    _world, baseline, target, data = a_world(6, episodes=200)
    results = evaluate_many(data, target, baseline, folds=3)
    low, high = results["dr"].interval(0.1)
    assert np.all((low < results["dr"].value) & (results["dr"].value < high))
    assert np.all(np.isnan(results["model"].interval(0.1)[0]))
    with pytest.raises(ParameterError, match="approximate"):
        results["dr"].interval(0.1, method="betting")
    cost = tuple(replace(objective, lower_is_better=True) for objective in data.objectives)
    ours, theirs = (evaluation_rows(results, objectives, delta=0.1) for objectives in (data.objectives, cost))
    for row, flipped in zip(ours, theirs, strict=True):
        assert flipped["value"] == -row["value"]
        if row["estimator"] != "model":
            assert (flipped["low"], flipped["high"]) == (-row["high"], -row["low"])
            assert flipped["low"] <= flipped["value"] <= flipped["high"]
