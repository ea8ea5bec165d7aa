"""An experiment of the gauntlet, and a small sweep with its tables and figures."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from bettersafe.envs.random_mdp import garnet, mixed_policy
from bettersafe.mdp.values import expected_return
from bettersafe.studies.catalogue import make_study
from bettersafe.studies.figures import write_figures
from bettersafe.studies.gauntlet.experiment import applies, calibration, experiment, instance_rows
from bettersafe.studies.gauntlet.instance import Instance, best_safe_gain, mixture_policy
from bettersafe.studies.gauntlet.plan import METHODS, gauntlet_study
from bettersafe.studies.sweep import read_rows, run_sweep
from bettersafe.studies.tables import words
from quick import rest_slow

UNIFORM = np.full((6, 3), 1.0 / 3.0)


@pytest.fixture
def instance():
    world = garnet(3, n_states=6, n_actions=3, end=0.2)
    return Instance(world=world, baseline=UNIFORM, preference=np.array([1.0, 0.0]))


def rows_of(instance, size=30, seed=0):
    return {words(row): row for row in instance_rows(instance, size, np.random.default_rng(seed), delta=0.1, draws=50)}


def test_rows_say_what_is_true(instance):
    rows = rows_of(instance, size=2000)
    assert list(rows) == list(METHODS)
    assert {name for name, row in rows.items() if not np.isnan(row["above"])} == {"b-opt"}
    for row in rows.values():
        assert row["kept"] == (0.0 if row["failure"] else row["share"])
        assert row["share"] <= 1.0 + 1e-6 or row["failure"]
    believed = rows["b-opt"]
    assert believed["proposed"]
    assert not believed["failure"]
    assert believed["share"] > 0.8  # with 2,000 episodes most of what can be gained is found
    assert believed["p_safe"] >= 0.9
    assert rows["linearized"]["failure"]  # nothing is protected


def test_the_share_is_of_the_best_that_is_safe(instance, monkeypatch):
    best = best_safe_gain(instance)
    found = SimpleNamespace(improvement=SimpleNamespace(policy=np.eye(3)[[0] * 6]), chosen=None, accepted=False)
    monkeypatch.setattr("bettersafe.studies.case.Case.b_opt", lambda self, preference: found)
    row = rows_of(instance)["b-opt"]
    gain = expected_return(instance.truth, found.improvement.policy) - expected_return(instance.truth, UNIFORM)
    assert row["share"] == pytest.approx(gain[0] / best)
    assert row["failure"] == bool(np.any(gain < -1e-6))
    assert np.isnan(row["above"])


def test_who_keeps_the_baseline_loses_nothing(instance):
    """Also if the baseline is estimated, and not quite the practice."""
    rows = rows_of(replace(instance, baseline_known=False), size=5)
    kept = [row for row in rows.values() if not row["proposed"]]
    assert kept
    assert all(row["share"] == 0.0 and not row["failure"] for row in kept)


def test_calibration_counts_objectives(instance):
    candidate = SimpleNamespace(
        gain=np.array([1.0, 2.0]),
        least=np.array([0.5, 1.9]),
        interval=np.array([[0.4, 2.0 - 1.6448536269514722], [1.6, 2.0 + 1.6448536269514722]]),
        p_safe=0.97,
    )
    found = SimpleNamespace(candidates=[None, candidate], chosen=1)
    row = calibration(found, np.array([0.3, 1.5]), instance, 0.1)
    assert row["above"] == 2.0
    assert row["covered"] == 1.0
    assert row["z_pursued"] == pytest.approx(-0.7 / 0.6 * 1.6448536)
    assert row["z_worst"] == row["z_pursued"]
    assert row["z_mean"] == pytest.approx((row["z_pursued"] - 0.5) / 2.0)
    assert row["p_safe"] == 0.97
    sure = SimpleNamespace(**{**vars(candidate), "interval": np.array([[1.0, 2.0], [1.0, 2.0]])})  # of no spread: no z
    row = calibration(SimpleNamespace(candidates=[sure], chosen=0), np.array([1.0, 2.0]), instance, 0.1)
    assert np.isnan(row["z_mean"])
    assert (row["above"], row["covered"]) == (0.0, 2.0)


def test_methods_that_do_not_apply_are_left_out(instance):
    discounts = tuple(
        replace(objective, discount=gamma)
        for objective, gamma in zip(instance.world.objectives, (0.9, 0.5), strict=True)
    )
    different = replace(instance, world=replace(instance.world, objectives=discounts))
    rows = rows_of(different)
    assert set(METHODS) - set(rows) == {"g-opt 1.0"}
    assert np.isnan(rows["b-opt"]["share"])
    assert set(METHODS) - set(rows_of(replace(instance, from_counts=True))) == {
        "h-opt published dr",
        "h-opt uncovered dr",
    }
    assert all(applies(method, instance) for method in METHODS)


@pytest.mark.parametrize(
    "what", rest_slow(["few", "one step", "cut off", "several", "hidden"], "few", "cut off", "hidden")
)
def test_every_feature_of_a_kind_can_be_run(instance, what):
    rng = np.random.default_rng(0)
    staff = tuple(mixed_policy(rng, np.eye(3)[np.full(6, a)], 0.7) for a in range(3))
    groups = np.array([0, 0, 1, 1, 2, 2])
    world, size = instance.world, 5 if what == "few" else 30
    changed = {
        "few": instance,
        "one step": replace(instance, world=garnet(3, n_states=6, n_actions=3, end=1.0)),
        "cut off": replace(instance, world=garnet(3, n_states=6, n_actions=3, end=0.0), horizon=15),
        "several": replace(instance, baseline=mixture_policy(world, staff), behaviours=staff, baseline_known=False),
        "hidden": replace(
            instance,
            baseline=mixture_policy(world, staff, groups),
            behaviours=staff,
            baseline_known=False,
            aggregate=groups,
        ),
    }[what]
    for row in rows_of(changed, size).values():
        assert np.isnan(row["share"]) == (what == "hidden")


def test_an_experiment_is_a_function_of_its_settings():
    job = {**gauntlet_study(worlds=1, kinds="garnet-weak").jobs[0], "draws": 20}
    first, again = experiment(job), experiment(job)
    assert repr(first) == repr(again)  # NaN is not equal to itself
    assert repr(first) != repr(experiment({**job, "log": 7}))
    assert {(row["half"], row["unlearnable"], row["objectives"]) for row in first} == {("choose", False, 2)}


@pytest.mark.slow
def test_a_small_sweep(tmp_path):
    study = make_study("gauntlet", worlds=2, kinds="garnet-weak,unseen,warehouse-counts")
    run_sweep(study, tmp_path / "study", workers=1)
    rows = read_rows(tmp_path / "study")
    assert rows.num_rows == 2 * (3 * 8 + 2 * 8 + 2 * 6)
    assert [path.name for path in write_figures(tmp_path / "study")] == [
        "gauntlet-choose.png", "gauntlet-choose.svg", "table.md", "summary.csv"
    ]  # fmt: skip
    page = (tmp_path / "study" / "figures" / "table.md").read_text(encoding="utf-8")
    assert "2 worlds of each kind and size" in page
    assert "## Harm that the log can't show" in page
    assert "Kinds to look at once" not in page
