"""Tasks: what is told on the way, what is saved, and the policies that come of it."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from bettersafe.envs.random_mdp import garnet
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.errors import BettersafeError, ParameterError, PolicyError
from bettersafe.logs.counts_file import save_counts
from bettersafe.logs.dataset import Objective, write_dataset
from bettersafe.logs.source import count_files, read_dataset
from bettersafe.mdp.values import expected_return
from bettersafe.methods.facts import METHODS
from bettersafe.report import trade_off
from bettersafe.report.objectives import objectives as objectives_of
from bettersafe.report.page import report_html
from bettersafe.runs.policy_file import write_policy
from bettersafe.runs.run import Decision, load_run, save_certificate, save_run
from bettersafe.tasks.evidence import evidence_for_policy, evidence_for_run
from bettersafe.tasks.retest import HeldOutTest, certify_run
from bettersafe.tasks.retest_posterior import PosteriorTest, certify_run_posterior
from bettersafe.tasks.run import run_task
from bettersafe.tasks.task import Rare, Task
from bettersafe.tasks.verify import verify_run
from bettersafe.text import numbers
from bettersafe.text.headlines import summarise
from logs import log_table
from toy_runs import RANGED

if TYPE_CHECKING:
    from pathlib import Path

    from bettersafe.typing import Event


@pytest.mark.parametrize(
    ("method", "last"), [("s-opt", "Improving: values of the baseline"), ("b-opt", "Making candidates")]
)
def test_a_task_on_counts_says_what_it_does(tmp_path: Path, method: str, last: str) -> None:
    """Where nothing counts rows, the steps are named; then come rounds and, of b-opt, how far the posterior is."""
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=4000)
    parquet.write_table(log_table(400).append_column("s", pa.array(rewards)), tmp_path / "log.parquet")
    objectives = (Objective(name="r", weight=0.0), Objective(name="s"))
    save_counts(count_files(tmp_path / "log.parquet", objectives=objectives), tmp_path / "counts.parquet")
    task = Task(data=str(tmp_path / "counts.parquet"), objectives=objectives, method=method, form="linearised")
    told: list[Event] = []
    run_task(task, progress=told.append)
    words = [one.what for one in told if not one.unit]
    assert words[:3] == ["Reading counts", "Estimating the model", last]
    rounds = [one for one in told if one.unit == "rounds"]
    assert rounds[0].what == ("Making candidates: number 1" if method == "b-opt" else "")
    assert any(one.unit in ("candidates", "priors") for one in told) == (method == "b-opt")


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


def test_candidates_are_saved_with_all_that_was_asked_of_them(files, tmp_path):
    run = run_task(Task(data=str(files / "log.parquet"), objectives=RANGED, draws=60))
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
        objectives=RANGED,
        derived=(Rare(below=300, reward=-1.0, discount=0.8),),
        epsilon=0.5,
    )
    run = run_task(task)
    assert run.certificate.grade == "approximate"
    assert "same counts" in " ".join(run.certificate.assumptions)
    held = run_task(dataclasses.replace(task, hold_out=0.4))
    assert [f.objective for f in held.certificate.findings] == ["gain", "harm", "rare"]
    asked = run_task(dataclasses.replace(task, threshold={"gain": 0.0}))
    assert asked.certificate.verdict.startswith("Not proven: ")
    with pytest.raises(ParameterError, match="no such objective"):
        run_task(dataclasses.replace(task, zeta={"gian": 1.0}))
    auto = run_task(dataclasses.replace(task, method="auto", epsilon=None, draws=40))
    assert auto.certificate.evidence == "posterior"
    assert auto.info.method == "b-opt"


# ---- baselines


@pytest.fixture
def baselines(files, tmp_path):
    """The baseline of the log as a file, and a whole one: with two states that the log never visits, and an action only there."""
    made = run_task(Task(data=str(files / "log.parquet"), objectives=RANGED, epsilon=0.0))
    part, whole = tmp_path / "part.csv", tmp_path / "whole.csv"
    write_policy(part, made.baseline, made.state_labels, made.action_labels)
    more = "-3,0,0.25\n-3,2,0.75\n77,9,1\n"
    whole.write_text(part.read_text(encoding="utf-8") + more, encoding="utf-8")
    return part, whole


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": 0.0}, {"epsilon": 0.5}, {"method": "adv-linearized"}, {"method": "linearized"}, {"method": "g-opt"},
        pytest.param({"method": "b-opt", "draws": 60}, marks=pytest.mark.slow), {"method": "b-opt", "form": "linearised"},
        {"method": "h-opt"}, {"epsilon": 0.5, "hold_out": 0.3}, {"epsilon": 0.5, "unseen": "worst"},
    ],
    ids=lambda settings: " ".join(map(str, settings.values())),
)  # fmt: skip
def test_a_whole_baseline_file_gives_the_policy_of_its_visited_part(files, baselines, tmp_path, settings):
    """To the bit; and the states that the log never visits keep the rows that were given."""
    task = Task(data=str(files / "log.parquet"), objectives=RANGED, **settings)
    part, whole = (run_task(dataclasses.replace(task, baseline=str(path))) for path in baselines)
    assert whole.state_labels.tolist() == [-3, 0, 1, 2, 3, 4, 77]
    assert whole.action_labels.tolist() == [0, 1, 2, 9]
    for name in ("policy", "proposal", "baseline", "counts"):
        table = getattr(whole, name)
        assert np.array_equal(table[1:6, :3], getattr(part, name)), name
        if name != "counts":
            assert table[0].tolist() == [0.25, 0.0, 0.75, 0.0]
            assert table[6].tolist() == [0.0, 0.0, 0.0, 1.0]
            assert not np.any(table[1:6, 3])
    assert whole.decision is part.decision
    assert whole.proposal_return.tolist() == part.proposal_return.tolist()
    assert (whole.certificate is None) == (part.certificate is None)
    if whole.certificate is not None:
        assert whole.certificate.findings == part.certificate.findings
    assert whole.info.n_states == part.info.n_states == 5
    assert whole.info.mean_moved == part.info.mean_moved
    note = "whole.csv has 2 states (such as -3, 77) that the log does not have; the policy keeps its rows there"
    assert note in whole.info.notes
    assert not any("that the log does not have" in text for text in part.info.notes)
    save_run(whole, tmp_path / "RUN")
    again = load_run(tmp_path / "RUN")
    assert np.array_equal(again.policy, whole.policy)
    assert again.state_labels.tolist() == whole.state_labels.tolist()
    page = report_html(again)
    assert note in page
    assert "reached, but no decision was logged" not in page


def test_what_follows_a_run_with_a_whole_baseline(files, baselines, tmp_path):
    """Verification, a test on a log that visits a state for the first time, estimates, and the run's policy as a candidate."""
    log, whole = str(files / "log.parquet"), str(baselines[1])
    task = Task(data=log, objectives=RANGED, baseline=whole, draws=60)
    save_run(run_task(task), tmp_path / "RUN")
    verify_run(tmp_path / "RUN", data=log)
    run = load_run(tmp_path / "RUN")
    assert run.has_proposal
    counts = tmp_path / "counts.parquet"
    save_counts(count_files(log, objectives=RANGED), counts)
    for data in (log, str(counts)):
        assert certify_run_posterior(run, data, PosteriorTest(draws=60), force=True).accepted

    later = parquet.read_table(files / "later.parquet")
    state = later["state"].to_numpy().copy()
    last = np.flatnonzero(later["terminated"].to_numpy())[0]
    state[last] = 77  # one episode ends there, with an action that was logged
    visited = later.set_column(later.column_names.index("state"), "state", pa.array(state)).drop_columns(
        ["next_state", "baseline_prob"]
    )
    parquet.write_table(visited, tmp_path / "visited.parquet")
    with pytest.raises(BettersafeError, match="the baseline never plays"):  # the file gives action 9 in state 77
        certify_run(run, str(tmp_path / "visited.parquet"), force=True)
    action = later["action"].to_numpy().copy()
    action[last] = 9
    visited = visited.set_column(visited.column_names.index("action"), "action", pa.array(action))
    parquet.write_table(visited, tmp_path / "visited.parquet")
    with evidence_for_run(run, tmp_path / "visited.parquet") as evidence:
        assert evidence.log.state_labels.tolist() == [0, 1, 2, 3, 4, 77]  # neither log visits -3
        assert evidence.baseline.tolist() == run.baseline[1:].tolist()
        assert evidence.policy.tolist() == run.proposal[1:].tolist()
    certify_run(run, str(tmp_path / "visited.parquet"), force=True)

    with evidence_for_policy(
        tmp_path / "RUN" / "policy.parquet", task
    ) as evidence:  # its rows of other states are not needed
        assert evidence.policy.tolist() == run.policy[1:6, :3].tolist()
    again = run_task(dataclasses.replace(task, candidates=(str(tmp_path / "RUN" / "policy.parquet"),)))
    assert np.array_equal(again.policy, run.policy)


def test_rounded_probabilities_are_noted_in_the_run(files, tmp_path):
    """Six decimals or float32, in the log or in a file: the policy is almost the same, and a note says what was done."""
    log = parquet.read_table(files / "log.parquet")
    place = log.column_names.index("baseline_prob")
    exact = log["baseline_prob"].to_numpy()
    task = Task(data=str(files / "log.parquet"), objectives=RANGED, epsilon=0.5)
    plain = run_task(task)
    assert not any("rounded" in note for note in plain.info.notes)
    for name, values in (("six", np.round(exact, 6)), ("single", exact.astype(np.float32))):
        parquet.write_table(log.set_column(place, "baseline_prob", pa.array(values)), tmp_path / f"{name}.parquet")
        rounded = run_task(dataclasses.replace(task, data=str(tmp_path / f"{name}.parquet")))
        [note] = [note for note in rounded.info.notes if "rounded" in note]
        assert note.startswith("the probabilities logged with the data are rounded: their sum differs from 1 by up to")
        assert note in report_html(rounded)
        assert rounded.baseline == pytest.approx(plain.baseline, abs=3e-6)
        assert rounded.policy == pytest.approx(plain.policy, abs=1e-4)
        # and a file that is rounded in the other way agrees with this log
        write_policy(tmp_path / "b.csv", np.round(plain.baseline, 6), plain.state_labels, plain.action_labels)
        given = run_task(
            dataclasses.replace(task, data=str(tmp_path / f"{name}.parquet"), baseline=str(tmp_path / "b.csv"))
        )
        assert any(note.startswith("the probabilities in b.csv are rounded") for note in given.info.notes)


def test_logged_probabilities_that_are_wrong_stay_errors(files, tmp_path):
    log = parquet.read_table(files / "log.parquet")
    place = log.column_names.index("baseline_prob")
    for factor, message in (
        (0.999, r"state 0 sum to 0\.999"),
        (-1.0, "probability in .0, 1."),
        (0.0, "can't have had probability 0"),
    ):
        values = factor * log["baseline_prob"].to_numpy()
        parquet.write_table(log.set_column(place, "baseline_prob", pa.array(values)), tmp_path / "bad.parquet")
        with pytest.raises(BettersafeError, match=message):
            run_task(Task(data=str(tmp_path / "bad.parquet"), objectives=RANGED, epsilon=0.5))


# ---- one horizon


CUT = 6
"""Steps after which the logs below are cut off; the process itself never ends."""


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    """A world that never ends, and a log and a later one of its first steps; the second reward is a cost."""
    folder = tmp_path_factory.mktemp("endless")
    rng = np.random.default_rng(1)
    world = garnet(rng, n_states=4, n_actions=2, branching=3, end=0.0, discount=0.9)
    baseline = rng.dirichlet(np.full(2, 8.0), size=4)
    objectives = (
        dataclasses.replace(world.objectives[0], name="gain"),
        Objective(name="harm", discount=0.9, weight=0.0, lower_is_better=True),
    )
    for name in ("log", "later"):
        data = sample_episodes(world, baseline, 1500, rng, horizon=CUT)
        rewards = np.column_stack([data.rewards[:, 0], -data.rewards[:, 1]])
        write_dataset(dataclasses.replace(data, rewards=rewards, objectives=objectives), folder / f"{name}.parquet")
    return folder, true_mdp(world), baseline, objectives


def words_of(run):
    """The text of a run's report."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", report_html(run))).split())


def close(found, truth, error):
    """Whether numbers in the user's sign are within 5 standard errors and 3 % of the truth, higher is better."""
    signed = np.array([found[0], -found[1]]) if found[1] * truth[1] < 0.0 else np.array(found)
    return np.all(np.abs(signed - truth) <= 5.0 * np.asarray(error) + 0.03 * np.abs(truth))


@pytest.mark.parametrize("horizon", [None, CUT, 3])
def test_all_returns_of_a_run_are_of_the_same_steps(endless, tmp_path, horizon):
    """Model, test and log against the truth of the same steps; the logged return of a cut-off log is another number."""
    folder, truth, baseline, objectives = endless
    task = Task(
        data=str(folder / "log.parquet"), objectives=objectives, epsilon=0.2, hold_out=0.4, horizon=horizon,
        zeta={"harm": 50.0},
    )  # fmt: skip
    run = run_task(task)
    saved = load_run(save_run(run, tmp_path / "RUN"))
    assert saved.info.horizon == saved.certificate.horizon == horizon
    assert saved.certificate.complete
    true_base = expected_return(truth, baseline, horizon=horizon)
    true_policy = expected_return(truth, saved.proposal, horizon=horizon)
    rows = {(row["estimator"], row["objective"]): row for row in saved.evaluation}
    dr = [rows["dr", name] for name in ("gain", "harm")]
    logged = [rows["logged", name] for name in ("gain", "harm")]
    error = [row["standard_error"] for row in logged]
    assert close(saved.baseline_return, true_base, error)
    assert close(saved.proposal_return, true_policy, error)
    assert close([row["baseline_value"] for row in dr], true_base, error)
    assert close([row["value"] for row in dr], true_policy, error)
    assert close([row["value"] for row in logged], expected_return(truth, baseline, horizon=horizon or CUT), error)
    assert close([row["value"] for row in logged], true_base, error) == (horizon is not None)
    assert logged[0]["complete"] is (horizon is not None)
    for finding, row, sign in zip(saved.certificate.findings, dr, (1.0, -1.0), strict=True):
        assert finding.estimate == pytest.approx(sign * (row["value"] - row["baseline_value"]))
    assert (saved.certificate.theory is None) == (horizon is not None)

    words = words_of(saved)
    for row in dr:
        for three in (("value", "low", "high"), ("baseline_value", "baseline_low", "baseline_high")):
            assert numbers.with_interval(*(row[name] for name in three)) in words
    cut = f"(up to {CUT} steps; {logged[0]['episodes']} of {logged[0]['episodes']} episodes are cut off)"
    said = cut if horizon is None else f"(first {horizon} steps)"
    shown = numbers.with_interval(*(logged[0][name] for name in ("value", "low", "high")))
    assert f"Logged in the test episodes, under the baseline: {shown} {said}" in words
    if horizon is None:
        assert "discount 0.9, all steps, also after logging stopped" in words
        assert "Off-policy estimates, all steps, also after logging stopped" in words
        assert "Off-policy estimates, logged steps only, up to 6 steps" in words
        assert "Change against the baseline, all steps, also after logging stopped" in words
        assert "; cut-off episodes continued by the model)" in words
    else:
        assert f"discount 0.9, first {horizon} steps" in words
        assert f"Off-policy estimates, first {horizon} steps" in words
        assert f"Change against the baseline, first {horizon} steps" in words
        assert "; all steps, cut-off episodes continued by the model)" in words  # of the checks
        assert "logged steps only" not in words
        assert f"All returns are of the first {horizon} steps." in words


def test_a_test_without_a_model_is_of_the_logged_steps_and_stands_apart(endless, tmp_path):
    """pdis on a cut-off log: the model's returns, of all steps, are in a sentence and not in the table."""
    folder, _, _, objectives = endless
    task = Task(data=str(folder / "log.parquet"), objectives=objectives, epsilon=0.2, hold_out=0.4, estimator="pdis")
    run = run_task(task)
    assert run.certificate is not None
    assert not run.certificate.complete
    for view in objectives_of(run):
        assert [line.evidence for line in view.lines] == ["Held-out test"]
        assert view.aside[0].startswith(
            "Estimated model (all steps, also after logging stopped, from its own data: optimistic): "
        )
        assert "logged steps only" in view.note
    assert {dot.kind for dot in trade_off.dots(run)} == {"policy"}
    assert summarise(run).headline.endswith("in the logged steps only.")


def test_certify_and_verify_keep_the_horizon_of_the_run(endless, tmp_path):
    folder, truth, baseline, objectives = endless
    task = Task(data=str(folder / "log.parquet"), objectives=objectives, epsilon=0.2, horizon=4)
    assert task.resolved_method == "s-opt"
    run = run_task(task)
    assert run.certificate is None  # bounds from the counts are of returns without a horizon
    assert run.decision is Decision.NOT_TESTED
    place = save_run(run, tmp_path / "RUN")
    later = str(folder / "later.parquet")
    certificate, rows = certify_run(load_run(place), later, HeldOutTest(zeta={"harm": 50.0}))
    assert certificate.horizon == 4
    assert {(row["horizon"], row["complete"]) for row in rows} == {(4, True)}
    gain = expected_return(truth, run.proposal, horizon=4) - expected_return(truth, baseline, horizon=4)
    assert certificate.findings[0].lower_bound <= gain[0] <= certificate.findings[0].estimate + 0.5
    save_certificate(place, certificate, rows)
    verify_run(place, data=later)
    with pytest.raises(
        ParameterError, match=r"the run's returns are of 4 steps \(horizon\), and the posterior"
    ) as told:
        certify_run_posterior(load_run(place), later, force=True)
    assert told.value.setting == "horizon"


def test_a_policy_that_pays_only_later_is_not_proposed_for_a_short_horizon(tmp_path):
    """ "invest" pays −1 now and 9 in the next step, "take" pays 1: by the optimisation's discount invest, within one step take."""
    lines = ["episode,step,state,action,r,terminated"]
    for i in range(200):
        act = "invest" if i % 2 else "take"
        lines += [
            f"{i},0,a,{act},{-1 if i % 2 else 1},false",
            f"{i},1,{'b' if i % 2 else 'c'},go,{9 if i % 2 else 0},true",
        ]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def found(horizon):
        task = Task(data=str(tmp_path / "log.csv"), objectives=(Objective(name="r"),), epsilon=9.0, horizon=horizon)
        run = run_task(task)
        return dict(zip(run.action_labels, run.proposal[0], strict=True)), run

    first, run = found(1)
    assert first["take"] == pytest.approx(1.0)
    assert run.baseline_return == pytest.approx([0.0])
    assert run.proposal_return == pytest.approx([1.0])
    both, run = found(2)
    assert both["invest"] == pytest.approx(1.0)
    assert run.proposal_return == pytest.approx([-1.0 + 0.99 * 9.0])


@pytest.mark.parametrize(
    ("settings", "setting", "message"),
    [
        ({"method": "b-opt"}, "horizon", "horizon can't be used with b-opt: .* Use s-opt or h-opt"),
        ({"threshold": {"r": 1.0}}, "threshold", "a threshold with a horizon needs held-out episodes: set `hold_out`"),
        ({"horizon": 0}, "horizon", "horizon must be a number of steps, at least 1; got 0"),
    ],
)
def test_what_a_horizon_does_not_go_with_is_refused_by_name(settings, setting, message):
    with pytest.raises(ParameterError, match=message) as told:
        Task(data="log.csv", objectives=(Objective(name="r"),), **{"horizon": 5, **settings})
    assert told.value.setting == setting


# ---- discount 1


@pytest.mark.parametrize("method", [name for name in METHODS if name != "linearized"])
def test_every_method_works_at_discount_1(files, tmp_path, method):
    """Plain sums of rewards: the model's baseline is the mean of the logged sums, and every result can be saved and shown."""
    objectives = tuple(dataclasses.replace(o, discount=1.0, reward_range=None) for o in RANGED)
    task = Task(
        data=str(files / "log.parquet"), objectives=objectives, method=method, draws=50, zeta={"harm": 0.3, "gain": 0.3}
    )
    run = run_task(task)
    data = read_dataset(files / "log.parquet", objectives=objectives)
    sums = np.add.reduceat(data.rewards, data.episode_ptr[:-1], axis=0)
    if method != "h-opt":  # h-opt's model is of the other part
        assert run.baseline_return == pytest.approx(sums.mean(axis=0), rel=0.05)
    saved = load_run(save_run(run, tmp_path / "RUN"))
    words = words_of(saved)
    assert "discount 1" in words
    if saved.certificate is not None and saved.certificate.theory is not None:
        assert "nothing, the bound is wider than the range of returns" in words
    if run.has_proposal and method != "h-opt":
        certificate, rows = certify_run(
            saved, str(files / "later.parquet"), HeldOutTest(zeta={"harm": 9.0, "gain": 9.0})
        )
        assert {f.objective for f in certificate.findings} == {"gain", "harm"}
        own = next(row for row in rows if row["estimator"] == "dr")
        logged = next(row for row in rows if row["estimator"] == "logged")
        assert own["baseline_value"] == pytest.approx(logged["value"], rel=0.03)


def test_a_candidate_that_never_ends_is_refused_by_name(tmp_path):
    lines = ["episode,step,state,action,r"]
    lines += [f"{i},{t},a,{'go' if t else 'wait'},1" for i in range(40) for t in range(2)]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "loop.csv").write_text("state,action,probability\na,wait,1\na,go,0\n", encoding="utf-8")
    task = Task(
        data=str(tmp_path / "log.csv"), objectives=(Objective(name="r", discount=1.0),), candidates=(str(tmp_path / "loop.csv"),)
    )  # fmt: skip
    with pytest.raises(PolicyError, match=r"loop\.csv never reaches an end from state 'a'"):
        run_task(task)


@pytest.mark.parametrize("method", ["auto", "b-opt", "h-opt"])
def test_an_engine_is_refused_where_it_has_no_effect(files, method):
    task = Task(data=str(files / "log.parquet"), objectives=RANGED, method=method, engine="highs")
    with pytest.raises(ParameterError, match=r"engine is a setting of s-opt.* does not use it") as caught:
        run_task(task)
    assert caught.value.setting == "engine"
