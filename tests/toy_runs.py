"""Small runs and certificates, as `load_run` would give them, for tests of what is said about them."""

from __future__ import annotations

import dataclasses

import numpy as np

from bettersafe.certificate.certificate import Belief, Certificate, Finding
from bettersafe.evaluation.state_evidence import Gap, StateCheck
from bettersafe.logs.dataset import Objective
from bettersafe.runs.info import CandidateInfo, DataInfo, PosteriorCandidate, RunInfo
from bettersafe.runs.run import Run

OBJECTIVES = (
    Objective(name="gain", discount=0.8),
    Objective(name="harm", discount=0.8, weight=0.0, lower_is_better=True, label="Harm done", unit="points"),
)
RANGED = (
    Objective(name="gain", discount=0.8, reward_range=(0.0, 1.0)),
    Objective(name="harm", discount=0.8, weight=0.0, lower_is_better=True, reward_range=(0.0, 1.0)),
)
"""Of the logs that saved runs are made from and tested on."""


def toy_info(*, n_states=2, n_actions=2, objectives=OBJECTIVES, changed=True, **more):
    """How a small run was made."""
    given = {
        "method": "s-opt", "status": "The policy changes something.", "baseline_source": "estimated from the data",
        "preference": tuple(o.weight for o in objectives), "epsilon": 0.1, "delta": 0.1, "error_kind": "q", "unseen": "end",
        "engine": "native", "rounds": 2, "converged": True, "gap": 0.0, "n_states": n_states, "n_actions": n_actions,
        "n_pairs": n_states * n_actions, "states_changed": n_states if changed else 0, "states_kept": (), "mean_moved": 0.1,
        "largest_moved": 0.2, "largest_budget_used": 0.1, "settings": {}, "created": "2026-01-01T00:00:00+00:00",
        "data": DataInfo(path="log.csv", sha256="0" * 64, rows=100, episodes=10), "versions": {"bettersafe": "0.1.0"},
    }  # fmt: skip
    return RunInfo(**{**given, **more})


def toy_run(
    *, states=("calm", "ill"), actions=("rest", "treat"), objectives=OBJECTIVES, changed=True, certificate=None, **info
):
    """A run of a few states; ``info`` goes into its RunInfo."""
    x, a = len(states), len(actions)
    baseline = np.full((x, a), 1.0 / a)
    proposal = baseline.copy()
    if changed:
        proposal[:, 0] -= 0.5 / a
        proposal[:, -1] += 0.5 / a
    d = len(objectives)
    return Run(
        proposal=proposal,
        baseline=baseline,
        counts=np.arange(1, x * a + 1, dtype=np.int64).reshape(x, a) * 7,
        state_labels=np.array(states),
        action_labels=np.array(actions),
        objectives=tuple(objectives),
        baseline_return=np.linspace(1.0, 2.0, d),
        proposal_return=np.linspace(1.0, 2.0, d) + (0.5 if changed else 0.0),
        info=toy_info(n_states=x, n_actions=a, objectives=objectives, changed=changed, **info),
        certificate=certificate,
    )


def toy_check(**more):
    """A check that speaks against the model."""
    gap = Gap(
        objective="harm", model=2.0, log=3.5, error=0.2, statistic=7.5, p_value=1e-9, scale=4.0, label="Harm done"
    )
    return StateCheck(**{"kind": "return", "gaps": (dataclasses.replace(gap, **more),)})


def toy_certificate(**more):
    """A held-out test that passed."""
    given = {
        "findings": toy_findings(0.2, 0.2),
        "evidence": "held-out",
        "grade": "approximate",
        "assumptions": ("Episodes are independent.",),
        "delta": 0.1,
    }
    return Certificate(**{**given, **more})


def toy_findings(*bounds, level=0.05, zeta=0.0, estimate=0.4):
    """Gains of 0.4, or ``estimate``, that are at least ``bounds``."""
    return tuple(
        Finding(objective=o.name, estimate=estimate, lower_bound=b, level=level, zeta=zeta, label=o.label or "")
        for o, b in zip(OBJECTIVES, bounds, strict=True)
    )


def toy_candidate(*, believed=True, **more):
    """A candidate of B-OPT, or of H-OPT."""
    given = {
        "name": "S-OPT",
        "gain": (0.7, 0.2),
        "least": (0.6, 0.1),
        "level": 0.1,
        "passed": True,
        "chosen": False,
        **more,
    }
    if not believed:
        return CandidateInfo(**{"evidence": "safety-test", **given})
    asked = {
        "p_safe": 1.0,
        "error": 0.01,
        "p_objective": (1.0, 1.0),
        "p_pessimistic": (1.0, 1.0),
        "draws": 199,
        "open": False,
    }
    return PosteriorCandidate(**{"evidence": "posterior", **asked, **given})


def many_run(d=17):
    """The first objective is pursued; the posterior is least sure of 5, 11 and 3, in this order."""
    names = [f"o{k}" for k in range(d)]
    doubt = {5: 0.91, 11: 0.95, 3: 0.97}
    found = [
        Finding(objective=name, estimate=1.0 + k, lower_bound=0.5 * (1.0 + k), level=0.1, zeta=0.0)
        for k, name in enumerate(names)
    ]
    each = tuple(doubt.get(k, 1.0) for k in range(d))
    belief = Belief(priors="flat", p_safe=0.91, p_objective=each, p_pessimistic=(), draws=200)
    run = toy_run(objectives=[Objective(name=name, weight=float(k == 0)) for k, name in enumerate(names)])
    evidence = toy_certificate(findings=tuple(found), evidence="posterior", grade="posterior", beliefs=(belief,))
    return dataclasses.replace(run, certificate=evidence)
