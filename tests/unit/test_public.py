"""The faces of the package: what is in them, and what their functions say when they are handed the wrong thing."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import bettersafe
import public
from bettersafe import errors
from bettersafe.certificate.make import CrossFit, prove
from bettersafe.envs.gridworld import pit_gridworld
from bettersafe.envs.gym import TabularEnv
from bettersafe.envs.random_mdp import garnet
from bettersafe.envs.tabular import sample_episodes
from bettersafe.errors import BettersafeError
from bettersafe.evaluation.held_out import SafetyRule
from bettersafe.logs.counts import count
from bettersafe.logs.dataset import Columns, write_dataset
from bettersafe.logs.discretize import FeatureRule, fit_discretizer
from bettersafe.mdp.mdp import MDP
from bettersafe.methods.b_opt import CandidateGrid
from bettersafe.methods.lagrangian import lagrangian
from bettersafe.model import estimate_model
from bettersafe.posterior.draws import RayCluster
from bettersafe.posterior.events import DeclaredEvent
from bettersafe.posterior.judge import Question
from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.posterior.priors import PriorSet, posterior
from bettersafe.runs.run import save_run
from bettersafe.studies.catalogue import make_study
from bettersafe.studies.demo import run_demo
from bettersafe.tasks.evidence import evidence_on
from bettersafe.tasks.retest import HeldOutTest
from bettersafe.tasks.retest_posterior import PosteriorTest
from bettersafe.tasks.run import run_task
from bettersafe.tasks.task import Rare, Task

FUNCTIONS = {name: thing for name in public.homes() if inspect.isfunction(thing := public.load(name))}


@pytest.fixture(scope="module")
def things(tmp_path_factory):
    """Whatever a public function may want, by the name of its argument."""
    folder = tmp_path_factory.mktemp("things")
    world = garnet(0, n_states=5, n_actions=2, end=0.4)
    baseline = np.full((5, 2), 0.5)
    log = sample_episodes(world, baseline, 60, 1)
    write_dataset(log, folder / "log.parquet")
    counts, model = count(log), estimate_model(log)
    task = Task(data=str(folder / "log.parquet"), objectives=log.objectives, method="s-opt", epsilon=1.0)
    run = run_task(task)
    save_run(run, folder / "run")
    outcomes = gather_outcomes(log)
    improvement = bettersafe.s_opt(model, baseline, preference=[1.0, 1.0], epsilon=1.0)
    found = bettersafe.b_opt(
        outcomes, model, baseline, preference=[1.0, 1.0], question=Question(draws=5, form="linearised")
    )
    return {
        "folder": folder / "run",
        "world": world, "log": log, "dataset": log, "data": log, "safety": log, "train": log, "held_out": log,
        "counts": counts, "parts": [counts], "model": model, "mdp": model.mdp, "baseline": baseline, "policy": improvement.policy,
        "target": baseline, "best": baseline, "policies": [baseline], "improvement": improvement, "outcomes": outcomes,
        "posterior": posterior(counts), "question": Question(), "rule": SafetyRule(delta=0.1, zeta=[0.0, 0.0]),
        "preference": [1.0, 1.0], "objectives": log.objectives, "path": folder / "log.parquet", "task": task, "run": run,
        "mixture": lagrangian(model, baseline, preference=[1.0, 0.0], max_rounds=3), "answer": found.answer,
        "candidate": found.deciding, "theory": prove(model, baseline, baseline, counts, epsilon=1.0, delta=0.1, baseline_known=True),
        "certificate": run.certificate, "gridworld": pit_gridworld(0, size=3), "env": TabularEnv(world), "study": make_study("garnet/bopt", worlds=1),
        "study_id": "garnet/bopt", "discretizer": fit_discretizer({"a": [0.0, 1.0, 5.0, 6.0]}, k=2), "table": {"a": [0.0, 5.0]},
        "fractions": [0.5, 0.5], "rng": 0, "transition": np.zeros((2, 2, 2)), "reward": np.zeros((1, 2, 2)), "initial": [0.5, 0.5],
        "thresholds": [0.0], "terms": np.zeros((5, 2)), "state_labels": log.state_labels, "action_labels": log.action_labels,
        "output": folder / "out", "result": bettersafe.h_opt(log, log, baseline, preference=[1.0, 1.0]), "gain": [0.0, 0.0],
        "evidence": evidence_on(run, log, "log.parquet"), "indices": [0], "pits": [[False] * 8], "success_prob": np.ones((8, 4)),
        "zeta": [0.0, 0.0], "columns": Columns(), "priors": PriorSet(), "grid": CandidateGrid(), "control": model, "held_out_test": HeldOutTest(),
        "posterior_test": PosteriorTest(), "about_data": run.info.data, "demo": run_demo(patients=50), "names": ["r0"], "add": [folder / "log.parquet"],
    }  # fmt: skip


OTHERWISE = {
    ("save_certificate", "path"): "folder", ("load_run", "path"): "folder", ("write_report", "path"): "folder", ("read_policy", "path"): "folder",
    ("certify_run", "data"): "path", ("certify_run_posterior", "data"): "path", ("evidence_for_run", "data"): "path",
    ("discretize_log", "data"): "path", ("make_run", "data"): "about_data", ("evidence_for_policy", "policy"): "path",
    ("write_demo", "folder"): "output", ("count_shards", "parts"): "output", ("certify_run", "test"): "held_out_test",
    ("certify_run_posterior", "test"): "posterior_test", ("discretize_log", "objectives"): "names",
}  # fmt: skip
"""Arguments that mean something else in one function than in all others, and which of the things they get."""

OPTIONAL = {"columns", "model", "question", "priors", "grid", "rule", "test", "control", "objectives", "add"}
"""Arguments that may be left out, and are things all the same."""

PLAIN = {
    "k": 2, "n": 3, "draws": 3, "epsilon": 1.0, "delta": 0.1, "discount": 0.9, "method": "t", "estimator": "is", "baseline_known": True,
    "quality": 0.5, "n_episodes": 3, "low": 0.0, "high": 1.0, "n_later": 5, "baseline_source": "given", "settings": {},
}  # fmt: skip
"""Arguments that are numbers, words or flags."""

CHEAP = {
    "run_demo": {"patients": 50}, "feasible_gridworld": {"size": 3, "pit_prob": 0.1}, "count_shards": {"engine": "local", "workers": 1},
    "discretize_log": {"k": 2}, "evaluate_many": {"estimators": ["is"]}, "drawn_gains": {"draws": 3, "threads": 1}, "lagrangian": {"max_rounds": 3},
    "b_opt": {"grid": CandidateGrid(cautions=(0.0,), margins=(), local_cautions=(), epsilons=(), least_visits=(), audited=False), "question": Question(form="linearised")},
    "sensitivity": {"question": Question(form="linearised")}, "judge": {"question": Question(form="linearised")},
}  # fmt: skip
"""Options that keep a call short."""

BOTH = {
    ("estimate_model", "data", "the counts"), ("posterior", "outcomes", "the counts"), ("fit_discretizer", "table", "a dict"),
    ("assign_states", "table", "a dict"), ("write_policy", "action_labels", "a list"), ("read_policy", "state_labels", "a list"), ("read_policy", "action_labels", "a list"),
}  # fmt: skip
"""What is right, although it is of another type."""

WRONG = {
    "a path": "log.csv", "a Path": Path("log.csv"), "a number": 3, "a share": 0.5, "None": None, "a list": ["x", None], "an object": object(),
    "a class": MDP, "a table": pa.table({"state": ["a"]}), "a dict": {"a": 1},
}  # fmt: skip


def wrong_things(things):
    """Things that are nearly always wrong, and things of ours that are right elsewhere."""
    ours = ("log", "counts", "model", "mdp", "task", "run", "world", "improvement")
    return WRONG | {f"the {name}": things[name] for name in ours}


def alike(value, thing):
    """Whether ``thing`` may stand for ``value``, by its type."""
    if isinstance(value, np.ndarray | list | tuple):
        return isinstance(thing, np.ndarray)
    if isinstance(value, str | Path):
        return isinstance(thing, str | Path)
    return isinstance(thing, type(value))


def called(function, arguments):
    """Call a function; a context is entered."""
    result = function(**arguments)
    if isinstance(result, AbstractContextManager) and not isinstance(result, Path):
        with result:
            pass


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_wrong_thing_is_named_in_one_sentence(name, things, tmp_path, monkeypatch):
    """Never an AttributeError or TypeError from inside."""
    monkeypatch.chdir(tmp_path)
    arguments, optional = {}, set()
    for each, parameter in inspect.signature(FUNCTIONS[name]).parameters.items():
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            arguments[each] = PLAIN[each] if each in PLAIN else things[OTHERWISE.get((name, each), each)]
        elif each in OPTIONAL and (name, each) not in {
            ("drawn_gains", "objectives"),
            ("linearised_gains", "objectives"),
        }:
            optional.add(each)
    for each in [*(each for each in arguments if each not in PLAIN), *optional]:
        value = things[OTHERWISE.get((name, each), each)]
        for what, thing in wrong_things(things).items():
            if alike(value, thing) or (name, each, what) in BOTH or (each in optional and thing is None):
                continue
            with pytest.raises(BettersafeError) as told:
                called(FUNCTIONS[name], {**arguments, each: thing})
            sentence = str(told.value)
            assert sentence.endswith("."), (each, what, sentence)
            assert "\n" not in sentence, (each, what, sentence)


NUMBERS = {
    "k", "n", "n_init", "draws", "folds", "max_rounds", "n_episodes", "horizon", "size", "n_pit_kinds", "cell", "agent", "n_states", "n_actions",
    "branching", "n_objectives", "epsilon", "delta", "discount", "eta", "norm", "tol", "quality", "pit_prob", "below", "reward", "weight",
}  # fmt: skip
"""Options that are numbers."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_number_that_is_none_is_named_in_one_sentence(name, things, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parameters = inspect.signature(FUNCTIONS[name]).parameters
    arguments = {
        each: PLAIN[each] if each in PLAIN else things[OTHERWISE.get((name, each), each)]
        for each, parameter in parameters.items()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    }
    for each in NUMBERS & set(parameters):
        for thing in ("many", [1, 2], object()):
            if (name, each) in {("dense_mdp", "discount"), ("dense_mdp", "reward")}:  # arrays
                continue
            with pytest.raises(BettersafeError) as told:
                called(FUNCTIONS[name], {**arguments, each: thing})
            assert re.fullmatch(r"[^\n]+\.", str(told.value)), (each, thing)


HOSTILE = {
    "an object": object(), "None": None, "text": "many", "a null character": "a\0b", "bytes": b"ab", "a number": -1, "a huge number": 10**400, "NaN": float("nan"),
    "a complex number": 1j, "a list": [[1.0], [1.0, 2.0]], "a list of nothing": [None], "a dict": {"a": 1}, "a dict by index": {0: "x"}, "a set": {1, 2},
    "a pair": (float("nan"), "x"), "an array": np.full((2, 3, 4), np.nan), "an array of text": np.array(["a", "b"]), "a table": pa.table({"state": ["a"]}),
}  # fmt: skip
"""Values for any argument, of which nearly all are wrong."""

FREE = {("read_policy", "column")}
"""Arguments that may be anything."""


def told_or_taken(call, about):
    """Call with a hostile value: whether it was taken. Anything but a sentence is a failure."""
    try:
        call()
    except BettersafeError as told:
        sentence = str(told)
    except Exception as error:
        raise AssertionError(f"{about}: {type(error).__name__}: {error}") from error
    else:
        return True
    assert re.fullmatch(r"[^\n]+\.", sentence), (about, sentence)
    return False


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_option_is_told_by_an_error_from_inside(name, things, tmp_path, monkeypatch):
    """Options and plain arguments: an object is refused in one sentence, and every other value is taken or refused in one."""
    monkeypatch.chdir(tmp_path)
    parameters = inspect.signature(FUNCTIONS[name]).parameters
    required, optional = {}, []
    for each, parameter in parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            if parameter.default is parameter.empty:
                required[each] = PLAIN[each] if each in PLAIN else things[OTHERWISE.get((name, each), each)]
            else:
                optional.append(each)
    required |= CHEAP.get(name, {})
    for each in [*(each for each in required if each in PLAIN), *optional]:
        for what, value in HOSTILE.items():
            taken = told_or_taken(
                lambda each=each, value=value: called(FUNCTIONS[name], {**required, each: value}), (name, each, what)
            )
            assert not (taken and what == "an object") or (name, each) in FREE, (name, each)


MADE = {
    "log", "counts", "model", "mdp", "world", "outcomes", "posterior", "improvement", "gridworld", "study", "discretizer", "question", "rule", "columns", "priors",
    "grid", "held_out_test", "posterior_test", "task", "mixture", "objective", "cluster", "event", "folds", "rare", "feature",
}  # fmt: skip
"""Things whose types users make themselves."""


@pytest.mark.parametrize("name", sorted(MADE))
def test_no_field_is_told_by_an_error_from_inside(name, things):
    """Fields of types that users make; an array is never made from an object, and no wrong array comes to the kernel."""
    made = {
        **things, "objective": things["log"].objectives[0], "cluster": RayCluster(), "folds": CrossFit(folds=2), "rare": Rare(), "feature": FeatureRule(name="a"),
        "event": DeclaredEvent(name="fall", cost={"r0": -1.0}, rate=0.1),
    }[name]  # fmt: skip
    fields = {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}
    for field in dataclasses.fields(made):
        for what, value in HOSTILE.items():
            taken = told_or_taken(
                lambda field=field, value=value: type(made)(**{**fields, field.name: value}), (name, field.name, what)
            )
            array = str(field.type).partition(" ")[0] in {"Floats", "Ints", "Bools", "Bytes", "Labels"}
            assert not (taken and array and what == "an object") or field.name == "state_ptr", (name, field.name)


def test_hints_name_what_there_is():
    names = set(public.homes())
    for kind, made_by in errors.MADE_BY.items():
        assert kind in names, kind
        for word in re.findall(r"\b[A-Za-z_]+(?=\()|\b[a-z]+_[a-z_]+\b|\b[A-Z]{2,}\b", made_by):
            assert word in names, f"{kind}: {word}"


def test_faces_are_light_and_hold_what_they_list():
    script = (
        "import sys; before = set(sys.modules); import " + ", ".join(f"bettersafe.{folder}" for folder in public.FOLDERS)
        + "; print(*(set(sys.modules) - before))"
    )  # fmt: skip
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "scipy", "pyarrow", "duckdb"} & set(loaded)
    ours = {name for name in loaded if name.startswith("bettersafe.")}
    assert ours == {f"bettersafe.{folder}" for folder in public.FOLDERS}
    for folder in public.FOLDERS:
        face = getattr(__import__(f"bettersafe.{folder}"), folder)
        for name, module in public.stub(folder).items():
            assert getattr(face, name) is getattr(sys.modules[module], name), f"{folder}.{name}"
        told = face.__doc__
        modules = {
            path.stem if path.is_file() else path.name
            for path in (public.SOURCE / folder).iterdir()
            if not path.name.startswith("_") and (path.suffix == ".py" or (path / "__init__.py").exists())
        }
        listed = re.findall(r"^(\w+)  +\S", told, re.MULTILINE)
        assert sorted(listed) == sorted(modules), f"the docstring of {folder} lists its modules"


def test_folders_are_attributes_and_wait_until_they_are_used():
    script = (
        "import sys, bettersafe; before = set(sys.modules)\n"
        f"for name in {(*public.FOLDERS, 'errors', 'model')!r}:\n"
        "    assert f'bettersafe.{name}' not in before, name\n"
        "    assert getattr(bettersafe, name).__name__ == f'bettersafe.{name}', name"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_top_has_what_most_people_need():
    top = public.stub()
    assert 40 <= len(top) <= 50
    homes = public.homes()
    for name, module in top.items():
        assert homes[name] == module, name
        assert getattr(bettersafe, name) is getattr(sys.modules[module], name)
    from importlib.metadata import version

    assert bettersafe.__version__ == version("bettersafe")


def test_names_that_a_module_has_too_are_functions():
    """Wherever the module is imported first, the face gives the function."""
    script = (
        "import bettersafe.methods.s_opt, bettersafe.logs.describe, bettersafe.posterior.judge\n"
        "from bettersafe.methods import s_opt; from bettersafe.logs import describe; from bettersafe.posterior import judge\n"
        "print(callable(s_opt), callable(describe), callable(judge))"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["True"] * 3


SEEDED = {"drawn_gains", "certify_h_opt", "make_run", "make_study", "run_demo"}
"""Functions that write the seed into what they make, or whose draws are numbered from it."""


def test_what_draws_takes_rng_and_what_is_saved_has_a_seed():
    takes = {name: set(inspect.signature(function).parameters) for name, function in FUNCTIONS.items()}
    assert {name for name, names in takes.items() if "seed" in names} == SEEDED
    assert not [name for name, names in takes.items() if "random_state" in names]
    drawing = {name for name, names in takes.items() if "rng" in names}
    assert {
        "split",
        "sample_episodes",
        "garnet",
        "evaluate_policy",
        "lower_bound",
        "fit_discretizer",
        "discretize_log",
    } <= drawing


def test_a_seed_draws_what_its_generator_draws(things):
    for seed in (0, 5):
        for one, other in (
            (garnet(seed).outcome.data, garnet(np.random.default_rng(seed)).outcome.data),
            (
                bettersafe.split(things["log"], [0.5, 0.5], seed)[0].states,
                bettersafe.split(things["log"], [0.5, 0.5], np.random.default_rng(seed))[0].states,
            ),
            (
                sample_episodes(things["world"], things["baseline"], 9, seed).states,
                sample_episodes(things["world"], things["baseline"], 9, np.random.default_rng(seed)).states,
            ),
            (
                bettersafe.evaluate_policy(things["log"], things["policy"], things["baseline"], estimator="dr", folds=3, rng=seed).value,
                bettersafe.evaluate_policy(
                    things["log"], things["policy"], things["baseline"], estimator="dr", folds=3, rng=np.random.default_rng(seed)
                ).value,
            ),
        ):  # fmt: skip
            assert np.array_equal(one, other)
