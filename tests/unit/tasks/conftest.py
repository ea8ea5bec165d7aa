"""A log, a later one and a run saved from the first, for the tests of tasks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from typer.testing import CliRunner

from bettersafe.cli.main import app
from bettersafe.envs.random_mdp import garnet
from bettersafe.envs.tabular import sample_episodes
from bettersafe.logs.dataset import write_dataset
from bettersafe.runs.run import load_run, save_certificate, save_run
from bettersafe.tasks.retest import HeldOutTest, certify_run
from bettersafe.tasks.run import run_task
from bettersafe.tasks.task import Task
from toy_runs import RANGED


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
        write_dataset(dataclasses.replace(data, rewards=rewards, objectives=RANGED), folder / f"{name}.parquet")
    return folder


@pytest.fixture(scope="module")
def saved(files):
    run = run_task(Task(data=str(files / "log.parquet"), objectives=RANGED, epsilon=0.5))
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


# Every setting goes everywhere
class Reached(Exception):
    """Stops a command where its task is there."""


@pytest.fixture
def reached(monkeypatch, tmp_path):
    """The task that the words of a command come to."""

    def stop(task, **_):
        raise Reached(task)

    monkeypatch.setattr("bettersafe.tasks.run.run_task", stop)
    monkeypatch.setattr("bettersafe.explore.session.open_session", stop)

    def run(*words):
        named = words if "-o" in words else (*words, "-o", str(tmp_path / "run"))
        caught = CliRunner().invoke(app, [*named]).exception
        assert isinstance(caught, Reached), (words, caught)
        return caught.args[0]

    return run
