"""A log read in blocks of episodes: whatever the blocks, the numbers are those of the same log in memory, bit for bit."""

from __future__ import annotations

import dataclasses
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from bettersafe import _kernel
from bettersafe._system.memory import VARIABLE, available_bytes
from bettersafe.certificate.files import certificate_json
from bettersafe.envs.random_mdp import garnet
from bettersafe.envs.tabular import sample_episodes
from bettersafe.errors import DataError, MemoryLimitError, PolicyError
from bettersafe.evaluation import ESTIMATORS
from bettersafe.evaluation.evaluate import evaluate_many
from bettersafe.logs._reader import blocks
from bettersafe.logs.counts import Tally, count
from bettersafe.logs.dataset import Objective, split, take_episodes, write_dataset
from bettersafe.logs.episodes import first_steps, longest_episode, split_log
from bettersafe.logs.source import open_episodes, read_dataset
from bettersafe.model import estimate_model
from bettersafe.runs.policy_file import write_policy
from bettersafe.runs.run import load_run, save_run
from bettersafe.tasks.evidence import evaluate_saved, evidence_for_policy, evidence_for_run
from bettersafe.tasks.retest import HeldOutTest, certify_run
from bettersafe.tasks.run import run_task
from bettersafe.tasks.task import Rare, Task
from quick import rest_slow

OBJECTIVES = (
    Objective(name="gain", discount=0.9),
    Objective(name="harm", discount=0.8, weight=0.0, lower_is_better=True),
)


@pytest.fixture(scope="module")
def world():
    """A world, its baseline, and a log of it in which some episodes are cut off."""
    rng = np.random.default_rng(7)
    made = garnet(rng, n_states=6, n_actions=3, end=0.15, discount=0.8)
    baseline = rng.dirichlet(np.full(3, 4.0), size=6)
    log = sample_episodes(made, baseline, 300, rng, horizon=9)
    rewards = np.column_stack([log.rewards[:, 0], 0.0 - log.rewards[:, 1]]) + rng.normal(size=log.rewards.shape)
    return made, baseline, dataclasses.replace(log, rewards=rewards, objectives=OBJECTIVES)


@pytest.fixture(scope="module")
def files(world, tmp_path_factory):
    """The log, its rows in no order, as Parquet and as CSV; an earlier log, and a run made from it."""
    folder = tmp_path_factory.mktemp("episodes")
    made, baseline, log = world
    write_dataset(log, folder / "sorted.parquet")
    table = parquet.read_table(folder / "sorted.parquet")
    order = np.random.default_rng(0).permutation(table.num_rows)
    table = table.take(pa.array(order))
    parquet.write_table(table.replace_schema_metadata(None), folder / "log.parquet", row_group_size=700)
    csv.write_csv(table, folder / "log.csv")
    early = sample_episodes(made, baseline, 500, np.random.default_rng(8))
    write_dataset(dataclasses.replace(early, objectives=OBJECTIVES), folder / "early.parquet")
    task = Task(data=str(folder / "early.parquet"), objectives=OBJECTIVES, epsilon=1.0, derived=(Rare(below=40),))
    save_run(run_task(task), folder / "RUN")
    return folder


@pytest.fixture(params=[1, 90])
def small_blocks(request, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_ROWS", request.param)
    monkeypatch.setattr(blocks, "BATCH_ROWS", 64)
    return request.param


def same(a, b):
    """Equal to the last bit, NaN being NaN."""
    for field in dataclasses.fields(a):
        one, other = getattr(a, field.name), getattr(b, field.name)
        if isinstance(one, np.ndarray):
            assert one.dtype == other.dtype
            assert np.array_equal(one.view(np.int64) if one.dtype.kind == "f" else one,
                                  other.view(np.int64) if one.dtype.kind == "f" else other), field.name  # fmt: skip
        else:
            assert repr(one) == repr(other), field.name


@pytest.mark.parametrize("name", ["log.parquet", "log.csv"])
def test_blocks_are_the_log(files, small_blocks, name):
    whole = read_dataset(files / name, objectives=OBJECTIVES)
    with open_episodes(files / name, objectives=OBJECTIVES) as episodes:
        blocks = list(episodes.blocks())
        assert episodes.n_truncated == np.sum(~whole.terminated[whole.episode_ptr[1:] - 1]) > 10
        assert (episodes.n_rows, episodes.n_episodes) == (whole.n_rows, whole.n_episodes)
        same(count(episodes), count(whole))
    assert len(blocks) > 5
    assert all(block.n_rows <= small_blocks or block.n_episodes == 1 for block in blocks)
    for field in ("states", "actions", "rewards", "next_states", "terminated"):
        assert np.array_equal(np.concatenate([getattr(block, field) for block in blocks]), getattr(whole, field))
    lengths = np.concatenate([np.diff(block.episode_ptr) for block in blocks])
    assert np.array_equal(lengths, np.diff(whole.episode_ptr))
    assert np.array_equal(np.concatenate([block.episode_labels for block in blocks]), np.arange(whole.n_episodes))


def test_one_block_is_read_once(files):
    with open_episodes(files / "log.parquet", objectives=OBJECTIVES) as episodes:
        [one] = episodes.blocks()
        [again] = episodes.blocks()
    assert one is again
    assert one.blocks()[0] is one


def test_estimates_are_those_of_the_log_in_memory(files, world, small_blocks):
    _, baseline, _ = world
    whole = read_dataset(files / "log.parquet", objectives=OBJECTIVES)
    target = np.random.default_rng(1).dirichlet(np.full(3, 2.0), size=6)
    model = estimate_model(whole, unseen="baseline", baseline=baseline)
    with open_episodes(files / "log.parquet", objectives=OBJECTIVES) as episodes:
        for settings in ({"folds": 4}, {"model": model}, {"model": model, "drop_unsupported": True}):
            streamed = evaluate_many(episodes, target, baseline, **settings)
            read = evaluate_many(whole, target, baseline, **settings)
            for estimator in ESTIMATORS:
                same(streamed[estimator], read[estimator])
        lacking = baseline.copy()
        lacking[2] = [0.0, 0.5, 0.5]
        with pytest.raises(PolicyError, match="which the baseline never plays"):
            evaluate_many(episodes, target, lacking, estimators=("is",))


@pytest.mark.parametrize("horizon", rest_slow([1, 4, 9, 20], 1, 4))
def test_the_first_steps_are_those_of_the_log_in_memory(files, world, small_blocks, horizon):
    """Row by row: the first H rows of every episode; one with H rows or more counts as ended."""
    log = read_dataset(files / "log.parquet", objectives=OBJECTIVES)
    cut = first_steps(log, horizon)
    lengths = np.diff(log.episode_ptr)
    assert np.array_equal(np.diff(cut.episode_ptr), np.minimum(lengths, horizon))
    for i in range(log.n_episodes):
        old, new = (slice(*each.episode_ptr[i : i + 2]) for each in (log, cut))
        n = cut.episode_ptr[i + 1] - cut.episode_ptr[i]
        assert np.array_equal(cut.rewards[new], log.rewards[old][:n])
        assert np.array_equal(cut.states[new], log.states[old][:n])
        assert cut.terminated[new][-1] == (lengths[i] >= horizon or log.terminated[old][-1])
    with open_episodes(files / "log.parquet", objectives=OBJECTIVES) as episodes:
        on_disk = first_steps(episodes, horizon)
        assert (on_disk.n_rows, on_disk.n_truncated) == (cut.n_rows, cut.n_truncated)
        assert longest_episode(on_disk) == min(horizon, int(lengths.max()))
        together = np.concatenate([block.rewards for block in on_disk.blocks()])
        assert np.array_equal(together, cut.rewards)
        _, baseline, _ = world
        target = np.roll(baseline, 1, axis=0)
        ours, theirs = (evaluate_many(each, target, baseline, folds=3, horizon=horizon) for each in (episodes, log))
        for name in ESTIMATORS:
            assert np.array_equal(ours[name].per_trajectory, theirs[name].per_trajectory), name


def test_estimates_without_the_kernel_agree_to_rounding(files, world, small_blocks, monkeypatch):
    _, baseline, _ = world
    target = np.random.default_rng(1).dirichlet(np.full(3, 2.0), size=6)
    whole = evaluate_many(read_dataset(files / "log.parquet", objectives=OBJECTIVES), target, baseline, folds=3)
    monkeypatch.setattr(_kernel, "compiled", None)
    with open_episodes(files / "log.parquet", objectives=OBJECTIVES) as episodes:
        for estimator, found in evaluate_many(episodes, target, baseline, folds=3).items():
            assert np.allclose(found.per_trajectory, whole[estimator].per_trajectory, rtol=1e-9, atol=1e-9)


def test_commands_give_the_same_numbers_in_blocks(files, world, tmp_path, monkeypatch):
    run = load_run(files / "RUN")
    policy = tmp_path / "policy.csv"
    write_policy(policy, run.policy, state_labels=run.state_labels, action_labels=run.action_labels)
    task = Task(data=str(files / "log.csv"), objectives=OBJECTIVES)

    def found():
        with evidence_for_run(run, str(files / "log.parquet")) as evidence:
            assert [objective.name for objective in evidence.log.objectives] == ["gain", "harm", "rare"]
            rows = evaluate_saved(evidence)
        with evidence_for_policy(policy, task) as evidence:
            others = evaluate_saved(evidence)
        certificate, tested = certify_run(
            dataclasses.replace(run), str(files / "log.parquet"), HeldOutTest(threshold={"gain": -100.0})
        )
        return repr((rows, others, certificate_json(certificate), tested))

    whole = found()
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 90)
    assert found() == whole


def test_parts_drawn_at_random_are_those_of_the_log_in_memory(files, small_blocks):
    whole = read_dataset(files / "log.parquet", objectives=OBJECTIVES)
    shares = (0.2, 0.5, 0.3)
    in_memory = split(whole, shares, np.random.default_rng(4))
    with open_episodes(files / "log.parquet", objectives=OBJECTIVES) as episodes:
        parts = split_log(episodes, shares, np.random.default_rng(4))
        for part, expected in zip(parts, in_memory, strict=True):
            blocks = list(part.blocks())
            assert len(blocks) > 1
            assert (part.n_rows, part.n_episodes) == (expected.n_rows, expected.n_episodes)
            assert part.n_truncated == np.sum(~expected.terminated[expected.episode_ptr[1:] - 1]) > 0
            for field in ("states", "actions", "rewards", "next_states", "terminated"):
                found = np.concatenate([getattr(block, field) for block in blocks])
                assert np.array_equal(found, getattr(expected, field))
            same(count(part), count(expected))
        with pytest.raises(DataError, match="leaves none"):
            split_log(episodes, (1e-4, 1.0 - 1e-4), np.random.default_rng(0))


@pytest.mark.parametrize(
    "asked",
    [
        {"method": "h-opt", "hold_out": 0.3},
        {"method": "s-opt", "epsilon": 1.0, "hold_out": 0.4, "derived": (Rare(below=40),)},
        {"method": "s-opt", "epsilon": 1.0, "hold_out": 0.4, "estimator": "pdis", "bound": "bernstein"},
    ],
    ids=["h-opt", "s-opt", "finite"],
)
def test_held_out_episodes_are_tested_in_blocks(files, monkeypatch, asked):
    ranged = tuple(dataclasses.replace(o, reward_range=(-9.0, 9.0)) for o in OBJECTIVES)
    task = Task(data=str(files / "log.csv"), objectives=ranged, seed=3, **asked)

    def found():
        run = run_task(task)
        return run.proposal.tobytes(), certificate_json(run.certificate), repr(run.evaluation)

    monkeypatch.setattr("bettersafe.tasks.retest_posterior.read_dataset", None)
    monkeypatch.setattr("bettersafe.tasks.inputs.read_dataset", None)  # nothing reads it whole
    whole = found()
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 90)
    assert found() == whole


def test_finite_bounds_are_found_in_blocks(files, monkeypatch):
    run = load_run(files / "RUN")
    ranged = tuple(dataclasses.replace(o, reward_range=(-10.0, 10.0)) for o in run.objectives)
    run = dataclasses.replace(run, objectives=ranged)
    asked = HeldOutTest(estimator="pdis", bound="bernstein", seed=5)

    def found():
        certificate, tested = certify_run(dataclasses.replace(run), str(files / "log.parquet"), asked)
        assert certificate.data["tested_on"]["episodes"] == 240  # of 300, a fifth of which chose where to cut
        return repr((certificate_json(certificate), tested))

    whole = found()
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 90)
    assert found() == whole


def test_a_log_too_large_to_be_read_whole_is_evaluated(tmp_path, monkeypatch):
    n, length = 60_000, 10
    rng = np.random.default_rng(0)
    last = np.tile(np.arange(length) == length - 1, n)
    state = rng.integers(0, 4, (n, length))
    following = np.roll(state, -1, axis=1).reshape(-1)
    columns = {
        "episode": np.repeat(np.arange(n), length), "step": np.tile(np.arange(length), n), "state": state.reshape(-1),
        "action": rng.integers(0, 2, n * length), "next_state": pa.array(following, mask=last), "terminated": last,
        "gain": rng.integers(0, 3, n * length),
    }  # fmt: skip
    parquet.write_table(pa.table(columns), tmp_path / "log.parquet")
    target, baseline = np.tile([0.6, 0.4], (4, 1)), np.full((4, 2), 0.5)
    gain = [Objective(name="gain")]
    monkeypatch.setenv(VARIABLE, "none")
    with open_episodes(tmp_path / "log.parquet", objectives=gain) as episodes:  # what libraries take is taken now
        evaluate_many(episodes, target, baseline, folds=2)
    monkeypatch.setattr("bettersafe._system.memory.memory_limit", lambda: None)
    monkeypatch.setattr("bettersafe._system.memory._free_in_system", lambda: 150e6)
    assert available_bytes() <= 150e6
    with pytest.raises(MemoryLimitError, match="600,000 rows"):
        read_dataset(tmp_path / "log.parquet", objectives=gain)
    heard = []
    with open_episodes(tmp_path / "log.parquet", objectives=gain, progress=heard.append) as episodes:
        found = evaluate_many(episodes, target, baseline, folds=2)["dr"]
    assert found.n_episodes == n
    assert found.value[0] == pytest.approx((1.0 - 0.99**10) / 0.01, rel=0.02)  # every step pays 1 on average
    assert {reading.total for reading in heard} == {n * length}
    monkeypatch.setattr("bettersafe._system.memory._free_in_system", lambda: 50e6)
    with (
        open_episodes(tmp_path / "log.parquet", objectives=gain) as episodes,
        pytest.raises(MemoryLimitError, match="off-policy evaluation of 60,000 episodes needs about"),
    ):
        evaluate_many(episodes, target, baseline, folds=2)


def slow_groups(log, episodes):
    """n(x,a,x') and Σ r of the named episodes, by loops; x' is -1 for the end and -2 where it is not known."""
    visits, paid = defaultdict(int), defaultdict(float)
    for i in episodes:
        for row in range(log.episode_ptr[i], log.episode_ptr[i + 1]):
            x, a, y = int(log.states[row]), int(log.actions[row]), int(log.next_states[row])
            y = -2 if y < 0 and not log.terminated[row] else y
            visits[x, a, y] += 1
            if y != -2:
                paid[x, a] += log.rewards[row]
    return visits, paid


def test_a_tally_of_all_parts_but_one(world):
    _, _, log = world
    rng = np.random.default_rng(3)
    log = dataclasses.replace(log, next_states=_some_unknown(log, rng))
    part = rng.integers(0, 3, log.n_episodes)
    tally = Tally(3)
    for start in range(0, log.n_episodes, 100):
        chosen = np.arange(start, min(start + 100, log.n_episodes))
        tally.add(take_episodes(log, chosen), part[chosen])
    for without in (None, 0, 1, 2):
        found = tally.counts(without=without)
        episodes = np.flatnonzero(part != without) if without is not None else np.arange(log.n_episodes)
        visits, paid = slow_groups(log, episodes)
        expected = count(take_episodes(log, episodes))
        outcomes = {
            (int(found.pair_state[p]), int(found.pair_action[p]), int(found.outcome_state[j])): int(found.outcome_count[j])
            for p in range(found.n_pairs)
            for j in range(found.outcome_ptr[p], found.outcome_ptr[p + 1])
        }  # fmt: skip
        assert outcomes == {key: n for key, n in visits.items() if key[2] >= 0}
        assert found.n_dropped == sum(n for key, n in visits.items() if key[2] == -2) > 0
        for p in range(found.n_pairs):
            pair = int(found.pair_state[p]), int(found.pair_action[p])
            assert found.terminated_count[p] == visits[(*pair, -1)]
            assert found.reward_sum[:, p] == pytest.approx(paid[pair])
        for field in ("n_rows", "n_episodes", "n_truncated", "length_min", "length_max"):
            assert getattr(found, field) == getattr(expected, field), field
        for field in ("initial_count", "reward_min", "reward_max", "return_min", "return_max"):
            assert np.array_equal(getattr(found, field), getattr(expected, field)), field
        assert found.return_square_sum == pytest.approx(expected.return_square_sum)
    with pytest.raises(DataError, match="nothing to count"):
        Tally(2).counts()


def _some_unknown(log, rng):
    """Next states, with those of some cut-off episodes not known."""
    last = log.episode_ptr[1:] - 1
    cut = last[~log.terminated[last]]
    following = log.next_states.copy()
    following[cut[rng.random(cut.size) < 0.5]] = -1
    return following
