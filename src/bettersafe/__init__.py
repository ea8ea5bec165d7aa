"""Better on what you prefer, no worse on anything: policies improved from logged decisions with several objectives.

    data ──> model ──> improve ──> evaluate ──> certify ──> report

Names are imported when they are first used, so that ``import bettersafe`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bettersafe.bopt import BOpt, Candidate, b_opt, judge, sensitivity
    from bettersafe.bounds import choose_cap, lower_bound
    from bettersafe.certificate import (
        Certificate,
        Finding,
        Floor,
        Theory,
        certify,
        certify_h_opt,
        certify_posterior,
        certify_theory,
        prove,
    )
    from bettersafe.cmdp import CMDPOptimum, cmdp_optimum
    from bettersafe.countfile import add_files, load_counts, save_counts
    from bettersafe.counts import Counts, count, count_files, with_rare
    from bettersafe.data import Columns, Dataset, Objective, read_dataset, split, take_episodes, write_dataset
    from bettersafe.description import Description, describe
    from bettersafe.discretize import (
        Discretization,
        Discretizer,
        FeatureRule,
        assign_states,
        discretize_log,
        fit_discretizer,
        load_discretizer,
        save_discretizer,
    )
    from bettersafe.drawing import Cluster
    from bettersafe.episodes import Episodes, open_episodes
    from bettersafe.errors import (
        BettersafeError,
        DataError,
        MemoryLimitError,
        NoSolutionError,
        ParameterError,
        PolicyError,
        RunError,
    )
    from bettersafe.evaluate import Evaluation, evaluate_many, evaluate_policy
    from bettersafe.evidence import certify_run, certify_run_posterior, evaluate_saved, verify_run
    from bettersafe.game import Mixture, lagrangian, mixture_return
    from bettersafe.gopt import g_opt, g_opt_path
    from bettersafe.hcpi import HOpt, h_opt
    from bettersafe.improve import Improvement, adv_linearized, linearized, s_opt, soft_spibb
    from bettersafe.mdp import MDP, dense_mdp, expected_return, occupancy, policy_values
    from bettersafe.merging import merge_counts
    from bettersafe.model import Model, estimate_baseline, estimate_model, logged_baseline
    from bettersafe.pipeline import run_task
    from bettersafe.policies import read_policy, write_policy
    from bettersafe.posterior import Outcomes, Posterior, gather_outcomes, outcomes_of
    from bettersafe.report import report_html, write_report
    from bettersafe.runs import Run, largest_changes, load_run, make_run, save_run
    from bettersafe.safety import SafetyRule, SafetyTest, safety_test
    from bettersafe.sharding import count_shards
    from bettersafe.steps import Steps, gather_steps
    from bettersafe.task import Task, read_task

_WHERE = {
    "bopt": ("BOpt", "Candidate", "b_opt", "judge", "sensitivity"),
    "bounds": ("choose_cap", "lower_bound"),
    "certificate": (
        "Certificate",
        "Finding",
        "Floor",
        "Theory",
        "certify",
        "certify_h_opt",
        "certify_posterior",
        "certify_theory",
        "prove",
    ),
    "cmdp": ("CMDPOptimum", "cmdp_optimum"),
    "countfile": ("add_files", "load_counts", "save_counts"),
    "counts": ("Counts", "count", "count_files", "with_rare"),
    "data": ("Columns", "Dataset", "Objective", "read_dataset", "split", "take_episodes", "write_dataset"),
    "description": ("Description", "describe"),
    "episodes": ("Episodes", "open_episodes"),
    "discretize": (
        "Discretization",
        "Discretizer",
        "FeatureRule",
        "assign_states",
        "discretize_log",
        "fit_discretizer",
        "load_discretizer",
        "save_discretizer",
    ),
    "errors": (
        "BettersafeError",
        "DataError",
        "MemoryLimitError",
        "NoSolutionError",
        "ParameterError",
        "PolicyError",
        "RunError",
    ),
    "evidence": ("certify_run", "certify_run_posterior", "evaluate_saved", "verify_run"),
    "drawing": ("Cluster",),
    "evaluate": ("Evaluation", "evaluate_many", "evaluate_policy"),
    "game": ("Mixture", "lagrangian", "mixture_return"),
    "gopt": ("g_opt", "g_opt_path"),
    "hcpi": ("HOpt", "h_opt"),
    "improve": ("Improvement", "adv_linearized", "linearized", "s_opt", "soft_spibb"),
    "mdp": ("MDP", "dense_mdp", "expected_return", "occupancy", "policy_values"),
    "merging": ("merge_counts",),
    "model": ("Model", "estimate_baseline", "estimate_model", "logged_baseline"),
    "pipeline": ("run_task",),
    "policies": ("read_policy", "write_policy"),
    "posterior": ("Outcomes", "Posterior", "gather_outcomes", "outcomes_of"),
    "report": ("report_html", "write_report"),
    "runs": ("Run", "largest_changes", "load_run", "make_run", "save_run"),
    "safety": ("SafetyRule", "SafetyTest", "safety_test"),
    "sharding": ("count_shards",),
    "steps": ("Steps", "gather_steps"),
    "task": ("Task", "read_task"),
}
_MODULE = {name: module for module, names in _WHERE.items() for name in names}

__all__ = [  # noqa: RUF022 - as the data flows
    "Columns", "Objective", "Dataset", "read_dataset", "write_dataset", "split", "take_episodes", "Episodes", "open_episodes",
    "Counts", "count", "count_files", "merge_counts", "save_counts", "load_counts", "add_files", "count_shards", "with_rare", "Description", "describe",
    "FeatureRule", "Discretizer", "fit_discretizer", "assign_states", "save_discretizer", "load_discretizer", "Discretization", "discretize_log",
    "MDP", "dense_mdp", "policy_values", "expected_return", "occupancy",
    "Model", "estimate_model", "estimate_baseline", "logged_baseline",
    "Improvement", "s_opt", "g_opt", "g_opt_path", "soft_spibb", "adv_linearized", "linearized", "Mixture", "lagrangian", "mixture_return", "CMDPOptimum", "cmdp_optimum",
    "Outcomes", "gather_outcomes", "outcomes_of", "Steps", "gather_steps", "Cluster", "Posterior", "BOpt", "Candidate", "b_opt", "judge", "sensitivity",
    "Evaluation", "evaluate_policy", "evaluate_many", "lower_bound", "choose_cap", "SafetyRule", "SafetyTest", "safety_test", "HOpt", "h_opt",
    "Certificate", "Finding", "Floor", "Theory", "certify", "certify_h_opt", "certify_posterior", "certify_theory", "prove",
    "evaluate_saved", "certify_run", "certify_run_posterior", "verify_run",
    "read_policy", "write_policy", "Run", "make_run", "save_run", "load_run", "largest_changes", "report_html", "write_report",
    "Task", "read_task", "run_task",
    "BettersafeError", "DataError", "PolicyError", "ParameterError", "RunError", "NoSolutionError", "MemoryLimitError",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'bettersafe' has no attribute {name!r}")
    value = getattr(import_module(f"bettersafe.{_MODULE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
