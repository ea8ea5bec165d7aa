"""Checks of the log on the way from a task to a decision; a cold store whose thermometer is too coarse, with its truth."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from bettersafe.logs._reader import blocks
from bettersafe.logs._reader.files import DISCRETIZED_NOTE, is_discretized
from bettersafe.logs.counts_file import save_counts
from bettersafe.logs.dataset import Objective, write_dataset
from bettersafe.logs.discretize import assign_states, discretize_log, load_discretizer
from bettersafe.logs.source import count_files, open_episodes, read_dataset
from bettersafe.runs.run import Decision, load_run, save_certificate, save_run
from bettersafe.tasks import checks
from bettersafe.tasks.checks import HELD_OUT_NOTE, describe_rows, with_default_test
from bettersafe.tasks.inputs import task_baseline, task_counts
from bettersafe.tasks.outcomes import PAIR_REWARDS
from bettersafe.tasks.retest_posterior import PosteriorTest, certify_run_posterior
from bettersafe.tasks.run import run_task
from bettersafe.tasks.task import Rare, Task
from bettersafe.tasks.verify import verify_run
from bettersafe.text.headlines import summarise
from state_worlds import garnet_log, store_features, store_returns

COSTS = (
    Objective(name="energy", lower_is_better=True, discount=0.97),
    Objective(name="spoilage", lower_is_better=True, discount=0.97, weight=0.0),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    parquet.write_table(pa.table(store_features(np.random.default_rng(0))), folder / "features.parquet")
    discretize_log(folder / "features.parquet", folder / "states", k=8, objectives=["energy", "spoilage"])
    return folder


def store_task(store, **more):
    return Task(data=str(store / "states" / "log.parquet"), objectives=COSTS, draws=100, **more)


@pytest.fixture(scope="module")
def garnet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("garnet")
    log, _ = garnet_log(np.random.default_rng(3), 400, n_states=6, end=0.3)
    write_dataset(log, folder / "log.parquet")
    return Task(data=str(folder / "log.parquet"), objectives=log.objectives, draws=100)


# ---- a cold store


def test_a_coarse_thermometer_is_not_used_without_a_test(store):
    """The model promises less spoilage than there is in truth, and the checks say that it does not fit."""
    run = run_task(store_task(store, hold_out=0.0, method="g-opt"))
    assert run.has_proposal
    assert [check.kind for check in run.certificate.checks] == ["return", "step-before", "small-step", "open-end"]
    assert run.certificate.checks[1].against
    fitted = load_discretizer(store / "states" / "discretizer.parquet")
    cool = run.action_labels.tolist().index("cool")

    def proposal(temperature):
        share = run.proposal[assign_states(fitted, {"temperature": temperature}), cool]
        return np.column_stack([1.0 - share, share])

    spoilage = store_returns(proposal, np.random.default_rng(1))[1]
    assert spoilage > 1.1 * -run.proposal_return[1]
    assert run.decision is Decision.NOT_TESTED
    assert summarise(run).headline == (
        "Not tested: not without a test on other episodes, because the model does not fit the log."
    )
    # and whatever the posterior says
    for found in (
        run_task(store_task(store, hold_out=0.0)).certificate,
        certify_run_posterior(run, store_task(store).data, PosteriorTest(draws=100)),
    ):
        assert found.evidence == "posterior"
        assert found.doubted
        assert not found.accepted
        decision = dataclasses.replace(run, certificate=found).decision
        assert decision is (Decision.NOT_TESTED if found.passes else Decision.KEEP_BASELINE)
        if found.passes:
            assert "Not without a test on other episodes: earlier steps of the episode help to predict" in found.verdict
            assert [found.outcome(k) for k in range(2)] == ["not tested", "not tested"]


def test_a_discretised_log_is_tested_by_default(store):
    task = store_task(store)
    run = run_task(task)
    assert run.info.method == "b-opt"
    assert run.info.settings["hold_out"] == 0.3
    assert HELD_OUT_NOTE in run.info.notes
    assert run.info.data.episodes == 210
    assert run.decision is not Decision.USE_POLICY
    assert run.certificate.checks[1].against


def test_the_test_of_a_discretised_log_is_on_other_episodes(store):
    run = run_task(store_task(store, method="g-opt"))
    assert run.info.method == "g-opt"
    assert run.has_proposal
    assert run.certificate.evidence == "held-out"
    assert run.certificate.data["tested_on"]["episodes"] == 90
    assert any(row["estimator"] == "dr" for row in run.evaluation)
    assert run.certificate.checks[1].against
    assert not run.certificate.doubted  # the test does not rest on the model


def test_what_is_tested_by_default(store, garnet, tmp_path):
    task = store_task(store)
    assert with_default_test(task).share == 0.3
    assert with_default_test(task).resolved_method == "b-opt"
    assert with_default_test(dataclasses.replace(task, epsilon=0.5)).resolved_method == "s-opt"
    for other in (
        dataclasses.replace(task, hold_out=0.0),
        dataclasses.replace(task, hold_out=0.5),
        dataclasses.replace(task, method="h-opt"),
        garnet,
    ):
        assert with_default_test(other) is other
    save_counts(count_files(task.data, objectives=COSTS), store / "states" / "counts.parquet")
    counted = dataclasses.replace(task, data=str(store / "states" / "counts.parquet"))
    assert with_default_test(counted) is counted


def test_a_discretised_log_is_recognised(store, tmp_path):
    log = store / "states" / "log.parquet"
    parquet.write_table(parquet.read_table(log), tmp_path / "moved.parquet")  # metadata go along
    assert is_discretized(log)
    assert is_discretized(tmp_path / "moved.parquet")
    parquet.write_table(parquet.read_table(log).replace_schema_metadata(), tmp_path / "plain.parquet")
    assert not is_discretized(tmp_path / "plain.parquet")
    (tmp_path / "beside").mkdir()
    parquet.write_table(parquet.read_table(log).replace_schema_metadata(), tmp_path / "beside" / "log.parquet")
    (tmp_path / "beside" / "discretizer.parquet").write_bytes((log.parent / "discretizer.parquet").read_bytes())
    assert is_discretized(tmp_path / "beside" / "log.parquet")
    assert not is_discretized(store / "features.parquet")
    assert DISCRETIZED_NOTE in read_dataset(log, objectives=COSTS).notes
    assert DISCRETIZED_NOTE in count_files(log, objectives=COSTS).notes
    with open_episodes(log, objectives=COSTS) as episodes:
        assert DISCRETIZED_NOTE in episodes.notes


def test_counts_of_a_discretised_log_are_not_enough(store, tmp_path):
    """Counts can't be checked row by row or tested, so the policy needs a test, unless people say otherwise."""
    save_counts(count_files(store / "states" / "log.parquet", objectives=COSTS), tmp_path / "counts.parquet")
    task = dataclasses.replace(store_task(store), data=str(tmp_path / "counts.parquet"))
    run = run_task(task)
    assert run.decision is not Decision.USE_POLICY
    assert [check.kind for check in run.certificate.doubted] == ["step-before"]
    assert "the states were made from continuous features" in run.certificate.doubted[0].sentence
    assert all(check.reason for check in run.certificate.checks)
    free = run_task(dataclasses.replace(task, hold_out=0.0))
    assert not free.certificate.doubted


# ---- a state that is enough


@pytest.mark.parametrize("method", ["b-opt", "s-opt"])
def test_the_certificate_has_the_checks(garnet, tmp_path, method):
    run = run_task(dataclasses.replace(garnet, method=method))
    found = run.certificate.checks
    assert [check.kind for check in found] == ["return", "step-before", "small-step"]
    assert not any(check.against or check.reason for check in found)
    folder = save_run(run, tmp_path / method)
    document = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    assert [row["sentence"] for row in document["checks"]] == [check.sentence for check in found]
    assert document["checks"][0]["gaps"][0]["objective"] == "r0"
    again = load_run(folder).certificate.checks
    assert [check.sentence for check in again] == [check.sentence for check in found]


def test_derived_objectives_are_checked_too(garnet):
    run = run_task(dataclasses.replace(garnet, derived=(Rare(below=50),)))
    assert [gap.objective for gap in run.certificate.checks[0].gaps] == ["r0", "r1", "rare"]


def test_a_large_log_is_checked_by_its_counts(garnet, monkeypatch):
    monkeypatch.setattr(checks, "MOST_ROWS", 10)
    first, second, third = run_task(dataclasses.replace(garnet, method="s-opt")).certificate.checks
    assert first.gaps
    assert second.reason == third.reason == "the log has more than 10 rows and was only counted"


def test_h_opt_and_tested_policies_have_checks_of_the_training_part(garnet):
    for task in (
        dataclasses.replace(garnet, method="h-opt"),
        dataclasses.replace(garnet, method="b-opt", hold_out=0.4),
        dataclasses.replace(garnet, method="g-opt", hold_out=0.4),
    ):
        certificate = run_task(task).certificate
        assert certificate.evidence in ("held-out", "safety-test")
        assert [check.kind for check in certificate.checks][:2] == ["return", "step-before"]


def test_b_opt_with_a_hold_out_on_disk(garnet, monkeypatch, tmp_path):
    """A log in many blocks gives the candidates from counts, with a note if these leave rewards open."""
    log = read_dataset(garnet.data, objectives=garnet.objectives)
    noise = np.random.default_rng(1).normal(size=log.rewards.shape)
    write_dataset(dataclasses.replace(log, rewards=log.rewards + noise), tmp_path / "noisy.parquet")
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 100)
    for data, noted in ((garnet.data, False), (str(tmp_path / "noisy.parquet"), True)):
        run = run_task(dataclasses.replace(garnet, data=data, method="b-opt", hold_out=0.4))
        assert (PAIR_REWARDS in run.info.notes) == noted
        assert run.certificate.evidence in ("held-out", "posterior")


# ---- certify


def test_the_posterior_of_a_saved_run_is_checked_again(store, tmp_path):
    """`certify --posterior` is no way around the checks; and it can be verified."""
    run = run_task(store_task(store, hold_out=0.0, method="g-opt"))
    folder = save_run(run, tmp_path / "RUN")
    data = str(store / "states" / "log.parquet")
    certificate = certify_run_posterior(run, data, PosteriorTest(draws=100))
    assert save_certificate(folder, certificate).decision is not Decision.USE_POLICY
    assert not verify_run(folder, data=data).accepted


# ---- describe


def test_describe_has_checks_and_drift(garnet, tmp_path, monkeypatch):
    counts = task_counts(garnet)
    found, drift = describe_rows(garnet, counts, task_baseline(garnet, counts))
    assert [check.kind for check in found] == ["return", "step-before"]
    assert drift == ()
    table = parquet.read_table(garnet.data)
    late = np.asarray(table["episode"]) >= 200
    shifted = table.set_column(table.column_names.index("r0"), "r0", pa.array(np.asarray(table["r0"]) + 2.0 * late))
    parquet.write_table(shifted, tmp_path / "shifted.parquet")
    task = dataclasses.replace(garnet, data=str(tmp_path / "shifted.parquet"))
    counts = task_counts(task)
    _, drift = describe_rows(task, counts, task_baseline(task, counts))
    assert len(drift) == 1
    assert "what follows a decision differs" in drift[0]
    monkeypatch.setattr(checks, "MOST_ROWS", 10)
    found, drift = describe_rows(task, counts, task_baseline(task, counts))
    assert [bool(check.reason) for check in found] == [False, True]
    assert drift == ()
