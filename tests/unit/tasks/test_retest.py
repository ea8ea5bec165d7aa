"""Evidence about saved runs, in process: what `verify` must notice, whose sign is whose, which log may test which policy."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from bettersafe.envs.random_mdp import garnet
from bettersafe.envs.tabular import sample_episodes
from bettersafe.errors import BettersafeError, ParameterError, PolicyError, RunError
from bettersafe.logs.dataset import Columns, Objective, write_dataset
from bettersafe.runs.policy_file import write_policy
from bettersafe.runs.run import _document_digest, load_run, save_certificate, save_run
from bettersafe.tasks.evidence import evaluate_saved, evidence_for_run
from bettersafe.tasks.retest import HeldOutTest, certify_run
from bettersafe.tasks.retest_posterior import PosteriorTest, certify_run_posterior
from bettersafe.tasks.run import run_task
from bettersafe.tasks.task import Rare, Task
from bettersafe.tasks.verify import verify_run

OBJECTIVES = (
    Objective(name="gain", discount=0.8, reward_range=(0.0, 1.0)),
    Objective(name="harm", discount=0.8, weight=0.0, lower_is_better=True, reward_range=(0.0, 1.0)),
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A log and a later one, of a world whose second reward is a cost; with logged probabilities."""
    folder = tmp_path_factory.mktemp("evidence")
    rng = np.random.default_rng(4)
    world = garnet(rng, n_states=5, n_actions=3, end=0.4, discount=0.8)
    baseline = rng.dirichlet(np.full(3, 4.0), size=5)
    for name, n in (("log", 1500), ("later", 3000), ("few", 6)):
        data = sample_episodes(world, baseline, n, rng)
        rewards = np.column_stack([data.rewards[:, 0], -data.rewards[:, 1]])
        write_dataset(dataclasses.replace(data, rewards=rewards, objectives=OBJECTIVES), folder / f"{name}.parquet")
    return folder


@pytest.fixture(scope="module")
def saved(files):
    run = run_task(Task(data=str(files / "log.parquet"), objectives=OBJECTIVES, epsilon=0.5))
    save_run(run, files / "RUN")
    return files / "RUN"


@pytest.fixture
def tested(saved, files, tmp_path):
    """A copy of the run with a held-out certificate."""
    import shutil

    folder = shutil.copytree(saved, tmp_path / "RUN")
    save_certificate(
        folder, *certify_run(load_run(folder), str(files / "later.parquet"), HeldOutTest(zeta={"harm": 0.1}))
    )
    return folder


def test_signs(files, saved):
    """A cost is a cost in every number that people see, and a gain is a gain in the certificate."""
    run = load_run(saved)
    certificate, rows = certify_run(
        run, str(files / "later.parquet"), HeldOutTest(threshold={"harm": 5.0, "gain": 0.0})
    )
    by_name = {(row["estimator"], row["objective"]): row for row in rows}
    logged, dr = by_name["logged", "harm"], by_name["dr", "harm"]
    assert 0.0 < dr["value"] < 5.0
    assert dr["low"] < dr["value"] < dr["high"]
    harm = certificate.findings[1]
    assert harm.estimate == pytest.approx(logged["value"] - dr["value"], abs=0.05)  # less harm is a gain
    floor = next(f for f in certificate.floors if f.objective == "harm")
    assert floor.threshold == -5.0  # at most 5
    assert floor.passed
    strict, _ = certify_run(
        run, str(files / "later.parquet"), HeldOutTest(threshold={"harm": 0.01}, zeta={"harm": 0.1})
    )
    assert strict.verdict.startswith("No solution found")
    assert strict.floors[0].shortfall > 0.0


def test_every_part_of_the_certificate_counts(tested, files):
    """An edit with the digest made anew is caught when the test is made again; without, at once."""
    file = tested / "certificate.json"
    original = json.loads(file.read_text(encoding="utf-8"))
    assert verify_run(tested, data=str(files / "later.parquet")).accepted

    def write(changes, *, digest):
        document = {**original, **changes}
        document.pop("sha256")
        document["sha256"] = _document_digest(document) if digest else original["sha256"]
        file.write_text(json.dumps(document), encoding="utf-8")

    loose = [{**row, "zeta": 5.0} for row in original["objectives"]]
    for changes in (
        {"grade": "exact"},
        {"objectives": loose},
        {"delta": 0.5},
        {"assumptions": ["trust me"]},
    ):
        write(changes, digest=False)
        with pytest.raises(RunError, match="digest"):
            verify_run(tested)
        write(changes, digest=True)
        with pytest.raises(RunError, match="made again"):
            verify_run(tested, data=str(files / "later.parquet"))
    for missing in ("policy_sha256", "run_sha256"):
        write({missing: None}, digest=True)
        with pytest.raises(RunError, match="does not say which"):
            verify_run(tested)
    for name in ("policy", "run", "evaluation"):
        write({f"{name}_sha256": "0" * 64}, digest=True)
        with pytest.raises(RunError, match="is about"):
            verify_run(tested)
    file.write_text(json.dumps(original), encoding="utf-8")
    verify_run(tested)


def test_every_field_of_run_json_counts(tested):
    file = tested / "run.json"
    original = json.loads(file.read_text(encoding="utf-8"))
    for key, value in original.items():
        other = not value if isinstance(value, bool) else (value + 1 if isinstance(value, int | float) else None)
        file.write_text(json.dumps({**original, key: other}), encoding="utf-8")
        with pytest.raises(BettersafeError):
            verify_run(tested)


def test_types_of_run_json_are_checked(saved, tmp_path):
    import shutil

    folder = shutil.copytree(saved, tmp_path / "R")
    (folder / "certificate.json").unlink()
    file = folder / "run.json"
    original = json.loads(file.read_text(encoding="utf-8"))
    rows = original["objectives"]
    for changes in (
        {"preference": 3}, {"notes": "x"}, {"rounds": "many"}, {"gap": None}, {"states_kept": 1}, {"mean_moved": "x"},
        {"actions": 5}, {"objectives": [{**rows[0], "name": 7}, rows[1]]},
        {"objectives": [{**rows[0], "unit": 7}, rows[1]]}, {"objectives": [{**rows[0], "reward_range": 7}, rows[1]]},
        {"objectives": [{**rows[0], "proposal_return": "x"}, rows[1]]}, {"objectives": "x"},
    ):  # fmt: skip
        file.write_text(json.dumps({**original, **changes}), encoding="utf-8")
        with pytest.raises(BettersafeError):
            load_run(folder)


def test_a_log_that_made_the_policy_does_not_test_it(saved, files, tmp_path):
    import pyarrow.parquet as pq

    table = pq.read_table(files / "log.parquet")
    turned = table.take(np.arange(table.num_rows)[::-1])
    pq.write_table(turned, tmp_path / "copy.parquet")
    with pytest.raises(RunError, match="made from"):
        certify_run(load_run(saved), str(files / "log.parquet"))
    with pytest.raises(RunError, match="same decisions"):
        certify_run(load_run(saved), str(tmp_path / "copy.parquet"))
    one = table.filter(np.array(table["episode"]) == 0)
    pq.write_table(one, tmp_path / "one.parquet")
    with pytest.raises(RunError, match="one episode"):
        certify_run(load_run(saved), str(tmp_path / "one.parquet"))
    with evidence_for_run(load_run(saved), str(tmp_path / "one.parquet")) as evidence:
        rows = evaluate_saved(evidence)
    assert {row["estimator"] for row in rows} == {"logged", "is", "pdis", "wis", "cwpdis"}


def test_logged_probabilities_must_agree(saved, files, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(files / "later.parquet")
    place = table.column_names.index("baseline_prob")
    half = pa.array(np.array(table["baseline_prob"]) / 2.0)
    pq.write_table(table.set_column(place, "baseline_prob", half), tmp_path / "other.parquet")
    with pytest.raises(PolicyError, match="logged probability"):
        certify_run(load_run(saved), str(tmp_path / "other.parquet"))


def test_finite_sample_with_a_known_baseline_and_its_tuning_part(saved, files):
    certificate, _ = certify_run(
        load_run(saved), str(files / "later.parquet"), HeldOutTest(bound="betting", estimator="pdis")
    )
    assert certificate.grade == "finite-sample"
    assert certificate.data["tested_on"]["episodes"] == 2400  # a fifth went into choosing the cap


def test_columns_are_kept_for_verifying(tested, files, tmp_path):
    import pyarrow.parquet as pq

    table = pq.read_table(files / "later.parquet")
    pq.write_table(
        table.rename_columns([{"state": "cluster"}.get(c, c) for c in table.column_names]), tmp_path / "c.parquet"
    )
    run = load_run(tested)
    save_certificate(
        tested, *certify_run(run, str(tmp_path / "c.parquet"), columns=Columns(state="cluster"), force=True)
    )
    again = verify_run(tested, data=str(tmp_path / "c.parquet"))
    assert any("tested 1 time before" in text for text in again.assumptions)


def test_the_posterior_may_be_asked_about_the_log_that_made_the_policy(saved, files):
    run = load_run(saved)
    certificate = certify_run_posterior(run, str(files / "log.parquet"), PosteriorTest(draws=60))
    assert certificate.grade == "posterior"
    assert len(certificate.beliefs) == 5
    assert certificate.accepted
    worse = dataclasses.replace(run, proposal=np.roll(run.proposal, 1, axis=1))
    assert not certify_run_posterior(worse, str(files / "log.parquet"), PosteriorTest(draws=60)).accepted


def test_a_run_is_tested_once(tested, files):
    """In Python as on the command line: no second test, and no posterior in the place of one, unless forced."""
    log, later = str(files / "log.parquet"), str(files / "later.parquet")
    run = load_run(tested)
    with pytest.raises(ParameterError, match=r"tested already.*force=True"):
        certify_run(run, later)
    with pytest.raises(ParameterError, match=r"tested on held-out episodes, and passed.*force=True"):
        certify_run_posterior(run, log, PosteriorTest(draws=40))
    asked = certify_run_posterior(run, log, PosteriorTest(draws=40), force=True)
    assert asked.settings["tested_before"] == 1
    with pytest.raises(ParameterError, match="tested already"):  # the test stays on record
        certify_run(save_certificate(tested, asked), later)
    again, _ = certify_run(load_run(tested), later, force=True)
    assert again.settings["tested_before"] == 1
    # what is held out within `improve` is such a test; what H-OPT chooses by, and what the counts prove, is none
    held = run_task(Task(data=log, objectives=OBJECTIVES, epsilon=0.5, hold_out=0.3))
    with pytest.raises(ParameterError, match="tested already"):
        certify_run(held, later)
    chosen = run_task(Task(data=log, objectives=OBJECTIVES, method="h-opt", zeta={"harm": 0.2, "gain": 0.2}))
    assert chosen.has_proposal
    certify_run(chosen, later)


def test_what_was_asked_before_stays_on_record(saved, files, tmp_path):
    log, later = str(files / "log.parquet"), str(files / "later.parquet")
    run = load_run(saved)
    worse = dataclasses.replace(run, proposal=np.roll(run.proposal, 1, axis=1), certificate=None)
    tested, _ = certify_run(worse, later)
    assert not tested.accepted
    question = PosteriorTest(draws=60, pessimism=0.0)
    asked = certify_run_posterior(dataclasses.replace(worse, certificate=tested), log, question, force=True)
    assert [each["evidence"] for each in asked.settings["earlier"]] == ["held-out"]
    assert asked.settings["tested_before"] == 1
    assert any("tested 1 time before, and did not pass" in text for text in asked.assumptions)
    assert any(text.startswith("No pessimistic prior was asked") for text in asked.assumptions)
    again, _ = certify_run(dataclasses.replace(worse, certificate=asked), later, force=True)
    assert [each["evidence"] for each in again.settings["earlier"]] == ["held-out", "posterior"]
    assert again.settings["earlier"][1]["pessimism"] == 0.0
    assert any("tested 1 time before" in text for text in again.assumptions)


def test_candidates_are_saved_with_all_that_was_asked_of_them(files, tmp_path):
    run = run_task(Task(data=str(files / "log.parquet"), objectives=OBJECTIVES, draws=60))
    taken = next(row for row in run.info.candidates if row.chosen)
    belief = run.certificate.beliefs[0]
    assert taken.p_safe == belief.p_safe
    assert taken.p_pessimistic == belief.p_pessimistic
    assert taken.p_objective == belief.p_objective
    assert taken.error == belief.error > 0.0  # none of 60 failed, which is not never
    assert taken.draws == 60
    save_run(run, tmp_path / "RUN")
    assert repr(load_run(tmp_path / "RUN").info) == repr(run.info)  # where NaN is NaN


def test_derived_objectives_and_thresholds(files):
    task = Task(
        data=str(files / "log.parquet"),
        objectives=OBJECTIVES,
        derived=(Rare(below=300, reward=-1.0, discount=0.8),),
        epsilon=0.5,
    )
    run = run_task(task)
    assert run.certificate.grade == "approximate"
    assert "same counts" in " ".join(run.certificate.assumptions)
    held = run_task(dataclasses.replace(task, hold_out=0.4))
    assert [f.objective for f in held.certificate.findings] == ["gain", "harm", "rare"]
    asked = run_task(dataclasses.replace(task, threshold={"gain": 0.0}))
    assert asked.certificate.verdict.startswith("No solution found")
    with pytest.raises(ParameterError, match="no such objective"):
        run_task(dataclasses.replace(task, zeta={"gian": 1.0}))
    auto = run_task(dataclasses.replace(task, method="auto", epsilon=None, draws=40))
    assert auto.certificate.evidence == "posterior"
    assert auto.info.method == "b-opt"


def test_what_improve_asked_of_the_posterior_can_be_asked_again(files, tmp_path):
    log = str(files / "log.parquet")
    rare = Rare(name="rare", below=5, reward=-1.0)
    task = Task(data=log, objectives=OBJECTIVES, derived=(rare,), zeta={"harm": 0.01}, draws=60, seed=3)
    save_run(run_task(task), tmp_path / "RUN")
    assert verify_run(tmp_path / "RUN", data=log).accepted
    assert "epsilon" not in load_run(tmp_path / "RUN").info.settings
    with pytest.raises(RunError, match="its digest differs"):
        verify_run(tmp_path / "RUN", data=str(files / "later.parquet"))
    file = tmp_path / "RUN" / "certificate.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    del document["sha256"]
    document["beliefs"][0]["p_safe"] = 0.999
    file.write_text(json.dumps({**document, "sha256": _document_digest(document)}), encoding="utf-8")
    with pytest.raises(RunError, match="gives another result: beliefs"):
        verify_run(tmp_path / "RUN", data=log)
    few = str(files / "few.parquet")
    save_run(run_task(dataclasses.replace(task, data=few, zeta={})), tmp_path / "FEW")
    assert not load_run(tmp_path / "FEW").has_proposal
    with pytest.raises(RunError, match="was not trusted"):
        verify_run(tmp_path / "FEW", data=few)


def test_priors_and_policies_of_your_own(files, tmp_path):
    """A policy that is handed in is a candidate, the priors asked for are named, and both are as before when verified."""
    log = str(files / "log.parquet")
    made = run_task(Task(data=log, objectives=OBJECTIVES, method="adv-linearized"))
    write_policy(tmp_path / "ours.csv", made.policy, made.state_labels, made.action_labels)
    task = Task(data=log, objectives=OBJECTIVES, prior="support", pessimism=2.0, draws=60)
    run = run_task(dataclasses.replace(task, candidates=(str(tmp_path / "ours.csv"),)))
    # as Adv-Linearized made it, so it is the same candidate, under the name that it was made with first
    assert [row.name for row in run.info.candidates] == [row.name for row in run_task(task).info.candidates]
    mixed = 0.9 * made.policy + 0.1 * made.baseline
    write_policy(tmp_path / "mixed.csv", mixed, made.state_labels, made.action_labels)
    run = run_task(dataclasses.replace(task, candidates=(str(tmp_path / "mixed.csv"),)))
    assert run.info.candidates[-1].name == str(tmp_path / "mixed.csv")
    assert run.certificate.beliefs[0].priors.startswith("support; support, pessimistic for gain")
    assert len(run.certificate.beliefs) == 3  # no concentration to halve or double
    assert "counts for one visit" in " ".join(run.certificate.assumptions)
    save_run(run, tmp_path / "RUN")
    assert verify_run(tmp_path / "RUN", data=log).settings["pessimism"] == 2.0
    question = PosteriorTest(prior="hierarchical", pessimism=0.0, draws=60)
    again = certify_run_posterior(load_run(tmp_path / "RUN"), log, question)
    assert again.beliefs[0].priors == "hierarchical"
    with pytest.raises(ParameterError, match="candidates are a setting of b-opt alone"):
        dataclasses.replace(task, candidates=("x.csv",), method="s-opt")
    with pytest.raises(ParameterError, match="b-opt has none and tries many"):
        dataclasses.replace(task, method="b-opt", epsilon=0.1)
    with pytest.raises(ParameterError, match="prior"):
        dataclasses.replace(task, prior="flat")
    with pytest.raises(ParameterError, match="pessimism"):
        dataclasses.replace(task, pessimism=-1.0)
