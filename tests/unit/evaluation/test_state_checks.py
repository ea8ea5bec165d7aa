"""The three checks of the state, against returns, finite differences and loops."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from bettersafe.envs.random_mdp import garnet
from bettersafe.envs.tabular import sample_episodes
from bettersafe.errors import PolicyError, WrongTypeError
from bettersafe.evaluation import state_checks
from bettersafe.evaluation.evaluate import evaluate_policy
from bettersafe.evaluation.state_checks import (
    check_counts,
    check_return,
    check_small_step,
    check_states,
    check_step_before,
    prepare_steps,
)
from bettersafe.evaluation.state_evidence import STEP
from bettersafe.logs.counts import count, with_rare
from bettersafe.logs.dataset import Dataset, Objective, write_dataset
from bettersafe.logs.source import open_episodes
from bettersafe.mdp.mdp import dense_q
from bettersafe.mdp.values import expected_return, policy_values
from bettersafe.model import estimate_baseline, estimate_model
from posterior_cases import one_step_log
from state_worlds import garnet_log, inventory_log, lasting_log, store_log


def small(seed=0, episodes=40, *, horizon=None, end=0.2):
    rng = np.random.default_rng(seed)
    world = garnet(rng, n_states=6, n_actions=3, end=end, discount=0.9)
    baseline = rng.dirichlet(np.full(3, 2.0), size=6)
    return sample_episodes(world, baseline, episodes, rng, horizon=horizon), baseline, rng


def returns_of(log):
    discount = np.array([objective.discount for objective in log.objectives])
    lengths = np.diff(log.episode_ptr)
    time = np.arange(log.n_rows) - np.repeat(log.episode_ptr[:-1], lengths)
    return np.add.reduceat(discount ** time[:, None] * log.rewards, log.episode_ptr[:-1], axis=0)


@pytest.mark.parametrize("known", [True, False])
def test_the_gap_of_returns_is_logged_minus_model(known):
    log, baseline, _ = small()
    check, *_ = check_states(log, baseline=baseline if known else None)
    own = baseline if known else estimate_baseline(count(log))
    model = expected_return(estimate_model(log).mdp, own)
    returns = returns_of(log)
    assert check.kind == "return"
    for k, gap in enumerate(check.gaps):
        assert gap.model == pytest.approx(model[k])
        assert gap.log == pytest.approx(returns[:, k].mean())
        assert gap.scale == pytest.approx(returns[:, k].std(ddof=1))
        assert 0.0 < gap.error < returns[:, k].std(ddof=1) / np.sqrt(log.n_episodes)


@pytest.mark.parametrize("known", [True, False])
def test_the_terms_of_the_gap_add_up_to_it(known):
    log, baseline, _ = small(horizon=4)
    steps = prepare_steps(log, baseline=baseline if known else None)
    for k, gap in enumerate(check_return(steps).gaps):
        terms = state_checks._residual_terms(steps, steps.weight(k), steps.target(k), steps.q[k], steps.v[k])
        assert terms.rows.sum() / steps.n_episodes == pytest.approx(gap.effect, abs=1e-9)


def test_a_cut_off_episode_is_continued_by_the_model():
    log, _, _ = small(horizon=3)
    assert log.n_truncated > 5
    steps = prepare_steps(log)
    last = log.episode_ptr[1:] - 1
    time = np.diff(log.episode_ptr)
    for k in range(2):
        tail = np.where(log.terminated[last], 0.0, 0.9**time * steps.v[k][log.next_states[last]])
        np.testing.assert_allclose(steps.returns(k), returns_of(log)[:, k] + tail)


def test_costs_keep_the_sign_of_their_column():
    log, _, _ = small()
    cost = tuple(dataclasses.replace(o, lower_is_better=True, label=o.name.upper()) for o in log.objectives)
    plain, turned = (check_states(each)[0] for each in (log, dataclasses.replace(log, objectives=cost)))
    for one, other in zip(plain.gaps, turned.gaps, strict=True):
        assert (one.model, one.log) == pytest.approx((-other.model, -other.log))
        assert other.title == one.objective.upper()


def test_what_is_logged_but_impossible_is_refused():
    log, baseline, _ = small()
    x, a = int(log.states[0]), int(log.actions[0])
    wrong = baseline.copy()
    wrong[x, a] = 0.0
    wrong[x] /= wrong[x].sum()
    with pytest.raises(PolicyError, match="never plays"):
        check_states(log, baseline=wrong)


def test_deterministic_logs_say_nothing_against_the_state():
    log = one_step_log([(0, 0, -1, 1.0, 2.0)] * 30 + [(1, 1, -1, 3.0, 0.1)] * 30)
    first, second = check_states(log)
    assert not first.against
    assert first.p_value == 1.0
    assert second.reason == "every episode has only one step"
    assert "was not checked" in second.sentence


# ---- earlier steps


def test_the_step_before_is_found_where_it_decides():
    """States are coin flips, and the reward is the flip before."""
    rng = np.random.default_rng(0)
    n, length = 200, 8
    flips = rng.integers(0, 2, size=(n, length + 2))
    x = flips[:, 1:-1]
    log = Dataset(
        states=x.ravel(),
        actions=np.zeros(x.size, dtype=np.int64),
        rewards=np.column_stack([flips[:, :-2].ravel(), rng.normal(size=x.size)]),
        next_states=flips[:, 2:].ravel(),
        terminated=np.zeros(x.size, dtype=bool),
        episode_ptr=np.arange(0, x.size + 1, length),
        state_labels=[0, 1],
        action_labels=[0],
        episode_labels=np.arange(n),
        objectives=[Objective(name="echo"), Objective(name="noise")],
    )
    check = check_step_before(prepare_steps(log))
    echo, noise = check.gaps
    assert check.against
    assert echo.p_value < 1e-6
    assert echo.log == pytest.approx(0.5, abs=0.1)  # the reward is 0 or 1, and known from the step before
    assert noise.p_value > 0.01
    assert check.shown == (echo,)
    assert "echo by about" in check.sentence
    assert "noise" not in check.sentence


def test_the_sum_of_earlier_surprises_by_hand():
    """q̂ of the only pair is 2, the mean reward: surprises are −1, 1, −2, 2 in one episode and −1, 1 in the other."""
    log = Dataset(
        states=[0] * 6,
        actions=[0] * 6,
        rewards=[[1.0], [3.0], [0.0], [4.0], [1.0], [3.0]],
        next_states=[0, 0, 0, -1, 0, -1],
        terminated=[False, False, False, True, False, True],
        episode_ptr=[0, 4, 6],
        state_labels=[0],
        action_labels=[0],
        episode_labels=[0, 1],
        objectives=[Objective(name="reward", discount=1e-12)],
    )
    steps = prepare_steps(log)
    np.testing.assert_allclose(steps.earlier_sum(np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])), [0, 1, 3, 7, 0, 16])
    before, earlier = state_checks._past_surprises(steps, 0, np.array([1, 2, 3, 5]))
    np.testing.assert_allclose(before, [-1.0, 1.0, -2.0, -1.0], atol=1e-9)
    np.testing.assert_allclose(earlier, [-1.0, 0.0, -2.0 / np.sqrt(3.0), -1.0], atol=1e-9)


def test_a_hidden_cause_that_lasts_for_the_episode_is_found(monkeypatch):
    """One surprise says little about a mean of ±0.2 with noise of 1; the sum of up to 19 of them says enough."""
    steps = prepare_steps(lasting_log(np.random.default_rng(0), 200)[0])
    check = check_step_before(steps)
    mood, noise = check.gaps
    assert check.against
    assert mood.p_value < 1e-3
    assert mood.log == pytest.approx(0.1, abs=0.05)  # root mean square of what the sum tells of ±0.2
    assert check.shown == (mood,)
    assert noise.p_value > 0.01
    assert check.sentence.startswith("earlier steps of the episode help to predict what follows a decision")
    right = state_checks._past_surprises
    monkeypatch.setattr(state_checks, "_past_surprises", lambda *given: right(*given)[:1])
    monkeypatch.setattr(state_checks, "TESTS_OF_STEP", 2)
    assert not check_step_before(steps).against  # the step before alone


@pytest.mark.parametrize("seed", range(3))
def test_without_a_hidden_cause_the_same_log_is_not_blamed(seed):
    check = check_step_before(prepare_steps(lasting_log(np.random.default_rng(seed), 200, size=0.0)[0]))
    assert not check.against
    assert check.sentence.startswith("earlier steps do not help to predict what follows a decision")


# ---- the small step


@pytest.mark.parametrize("known", [True, False])
def test_the_step_is_the_derivative_of_both_returns(known):
    log, baseline, rng = small(3)
    own = baseline if known else estimate_baseline(count(log))
    policy = 0.5 * own + 0.5 * rng.dirichlet(np.ones(3), size=6)
    assert count(log).n_pairs == 18
    check = check_small_step(prepare_steps(log, baseline=baseline if known else None), policy)
    eta = 1e-5
    mixed = [(1.0 + sign * eta) * own - sign * eta * policy for sign in (1, -1)]
    model = estimate_model(log)
    slope = (expected_return(model.mdp, mixed[1]) - expected_return(model.mdp, mixed[0])) / (2.0 * eta)
    seen = [evaluate_policy(log, each, own, estimator="pdis").value for each in mixed]
    by_episodes = (seen[1] - seen[0]) / (2.0 * eta)
    q = dense_q(model.mdp, policy_values(model.mdp, own)[1])
    lengths = np.diff(log.episode_ptr)
    weight = 0.9 ** (np.arange(log.n_rows) - np.repeat(log.episode_ptr[:-1], lengths))
    for k, gap in enumerate(check.gaps):
        gain = ((policy - own) * q[k]).sum(axis=1)  # the control variate: (ρ − 1) q̂ has this mean in its state
        own_gain = (policy / own - 1.0)[log.states, log.actions] * q[k][log.states, log.actions]
        control = np.sum(weight * (own_gain - gain[log.states])) / log.n_episodes
        assert gap.model == pytest.approx(STEP * slope[k], rel=1e-4)
        assert gap.log == pytest.approx(STEP * (by_episodes[k] - control), rel=1e-3)
        assert gap.error > 0.0


def test_a_policy_like_the_baseline_is_not_compared():
    log, baseline, _ = small()
    check = check_states(log, baseline=baseline, policy=baseline)[2]
    assert check.reason.startswith("the policy does not differ")
    assert not check.against


# ---- rows that can't be used


def naive_open_ends(log):
    rows = {i: list(range(*log.episode_ptr[i : i + 2])) for i in range(log.n_episodes)}
    while True:
        acted = {int(log.states[row]) for own in rows.values() for row in own}
        wrong = [
            i
            for i, own in rows.items()
            if own and not log.terminated[own[-1]] and int(log.next_states[own[-1]]) not in acted
        ]
        if not wrong:
            return sorted(row for own in rows.values() for row in own)
        for i in wrong:
            rows[i].pop()


@pytest.mark.parametrize("seed", range(6))
def test_open_ends_are_left_out_as_often_as_needed(seed):
    rng = np.random.default_rng(seed)
    log, _, _ = small(seed, episodes=4, horizon=3, end=0.01)
    last = log.episode_ptr[1:] - 1
    following = log.next_states.copy()
    unknown = last[(rng.random(last.size) < 0.3) & ~log.terminated[last]]
    following[unknown] = -1
    log = dataclasses.replace(log, next_states=following)
    kept = naive_open_ends(log)
    found = state_checks._without_open_ends(log)
    np.testing.assert_array_equal(found.states, log.states[kept])
    np.testing.assert_array_equal(found.next_states, log.next_states[kept])


def test_a_log_of_which_nothing_is_left_was_not_checked():
    log = dataclasses.replace(
        one_step_log([(0, 0, -1, 1.0, 2.0)] * 3), terminated=np.zeros(3, dtype=bool), next_states=np.full(3, -1)
    )
    checks = check_states(log, policy=np.full((2, 2), 0.5))
    assert [check.reason for check in checks] == ["no row has a known next state"] * 3


# ---- large logs, logs on disk, counts


def test_a_log_on_disk_gives_the_same(tmp_path):
    log, baseline, _ = small(episodes=30)
    write_dataset(log, tmp_path / "log.parquet")
    with open_episodes(tmp_path / "log.parquet", objectives=log.objectives) as episodes:
        assert check_states(episodes, baseline=baseline) == check_states(log, baseline=baseline)


def test_of_a_large_log_every_few_episodes_are_taken(monkeypatch):
    log, _, _ = small(episodes=41)
    monkeypatch.setattr(state_checks, "MOST_NUMBERS", log.n_rows * 2 // 3 + 1)
    found = state_checks._sample(log)
    assert found.n_episodes == 14
    np.testing.assert_array_equal(found.states[: np.diff(log.episode_ptr)[0]], log.states[: log.episode_ptr[1]])
    second = slice(found.episode_ptr[1], found.episode_ptr[2])
    np.testing.assert_array_equal(found.rewards[second], log.rewards[log.episode_ptr[3] : log.episode_ptr[4]])


def test_counts_allow_only_the_returns():
    log, baseline, _ = small(episodes=200)
    first, second, third = check_counts(count(log), baseline=baseline, with_policy=True)
    rows = check_states(log, baseline=baseline)[0]
    for gap, own in zip(first.gaps, rows.gaps, strict=True):
        assert (gap.model, gap.log, gap.scale) == pytest.approx((own.model, own.log, own.scale))
        assert gap.error == pytest.approx(gap.scale / np.sqrt(200))
        assert gap.error >= own.error
    assert second.reason == third.reason == "counts do not have the order of the rows"
    assert not first.against


def test_counts_of_cut_off_episodes_allow_nothing():
    log, _, _ = small(horizon=3)
    check = check_counts(count(log))[0]
    assert "cut off" in check.reason
    assert not check.gaps


def test_counts_find_a_model_that_is_far_off():
    """The demand of the season shows in the returns of complete episodes too."""
    log, _ = inventory_log(np.random.default_rng(0), 1500, season=True)
    ended = np.zeros(log.n_rows, dtype=bool)
    ended[log.episode_ptr[1:] - 1] = True
    log = dataclasses.replace(log, terminated=ended, next_states=np.where(ended, -1, log.next_states))
    assert check_counts(count(log))[0].against


def test_derived_objectives_have_no_logged_returns():
    log, _, _ = small()
    check = check_counts(with_rare(count(log), below=5))[0]
    assert [gap.objective for gap in check.gaps] == ["r0", "r1"]


def test_only_logs_are_checked():
    with pytest.raises(WrongTypeError, match="log"):
        check_states([1, 2, 3])


def test_a_coarse_thermometer_is_found_and_a_fine_one_is_not():
    assert check_states(store_log(np.random.default_rng(0), 60, bins=5))[1].against
    assert not check_states(store_log(np.random.default_rng(0), 60, bins=80))[1].against
    assert not any(check.against for check in check_states(garnet_log(np.random.default_rng(0), 60)[0]))


def test_it_says_which_returns_are_compared():
    """Cut-off episodes are continued by the model, and a discount of 1 is lowered only for them."""
    whole, cut = small()[0], small(horizon=3)[0]
    undiscounted = tuple(dataclasses.replace(objective, discount=1.0) for objective in whole.objectives)
    assert [check.returns for check in check_states(whole)] == ["", ""]
    (found, _) = check_states(cut)
    assert found.returns == "cut-off episodes continued by the model"
    assert found.returns in found.sentence
    (found, _) = check_states(dataclasses.replace(whole, objectives=undiscounted))
    assert found.returns == ""
    assert found.gaps[0].log == pytest.approx(np.add.reduceat(whole.rewards, whole.episode_ptr[:-1])[:, 0].mean())
    (found, _) = check_states(dataclasses.replace(cut, objectives=undiscounted))
    assert found.returns.startswith("discount 0.75 ")
    assert found.returns.endswith("instead of 1, cut-off episodes continued by the model")


# ---- states in which the log stopped


def ward_log(seed=0, episodes=200):
    """Two states; `send` (action 1) leads to a ward without logged decisions with probability 0.5, `keep` with 0.1."""
    rng = np.random.default_rng(seed)
    states, actions, following, ptr = [], [], [], [0]
    for _ in range(episodes):
        x = int(rng.integers(2))
        while True:
            a = int(rng.random() < 0.3)
            to = 2 if rng.random() < (0.5 if a else 0.1) else int(rng.integers(2))
            states, actions, following = [*states, x], [*actions, a], [*following, to]
            x = to
            if x == 2:
                break
        ptr.append(len(states))
    return Dataset(
        states=np.array(states),
        actions=np.array(actions),
        rewards=np.ones((len(states), 1)),
        next_states=np.array(following),
        terminated=np.zeros(len(states), dtype=bool),
        episode_ptr=np.array(ptr),
        episode_labels=np.arange(episodes),
        state_labels=np.array(["a", "b", "ward"]),
        action_labels=np.array(["keep", "send"]),
        objectives=(Objective(name="r", discount=0.9),),
    )


def test_a_policy_that_goes_where_the_log_stopped_is_told():
    log = ward_log()
    baseline = np.array([[0.7, 0.3]] * 2 + [[0.5, 0.5]])
    sends, keeps = (np.array([row] * 2 + [[0.5, 0.5]]) for row in ([0.0, 1.0], [1.0, 0.0]))
    *_, more = check_states(log, baseline=baseline, policy=sends)
    *_, fewer = check_states(log, baseline=baseline, policy=keeps)
    assert (more.kind, more.against, fewer.kind, fewer.against) == ("open-end", True, "open-end", False)
    assert more.sentence.startswith(
        "the log stopped 200 times in a state without logged decisions (ward), and what follows"
    )
    assert "more often" in more.sentence
    assert fewer.sentence.endswith("the policy does not go there more often")
    log, baseline, _ = small()
    assert [check.kind for check in check_states(log, baseline=baseline, policy=baseline)][-1] != "open-end"
