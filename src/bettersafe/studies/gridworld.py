"""The gridworld study: policies improved from logs of gridworlds with pits, judged by their true returns.

An experiment is one CMDP (a seed) and one quality ρ of its baseline π_b = ρ π* + (1−ρ) uniform. In it, for every size |D|
of the log and every preference λ, each method makes a policy, of which is recorded:

    improvement   J_λ(π) − J_λ(π_b) in the true process
    failure       for some k, J_k(π) < J_k(π_b) − TOL · range_k

Methods are written as words: ``linearized``, ``adv-linearized``, ``s-opt 0.1`` (ε), ``soft-spibb 0.1``, ``h-opt paper dr``
(rule and estimator; Student t), ``lagrangian 0.01`` (η), ``g-opt 0.1`` (ε; margin 0), ``b-opt`` (all three kinds of candidates),
``optimum`` (knows the process: the most goal of all policies that are no worse than the baseline on any kind of pits; what could be
gained differs from world to world, and on average with the kinds of pits). The conventions of the published code that can be
told apart are settings, so that each can be switched on and its effect measured; `CONVENTIONS` says which.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bettersafe.envs.gridworld import HORIZON, feasible_gridworld, known_rewards, quality_baseline
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.errors import ParameterError, check_probability
from bettersafe.evaluation.evaluate import Evaluation, evaluate_many
from bettersafe.evaluation.held_out import SafetyRule
from bettersafe.logs.dataset import split
from bettersafe.mdp.constrained import cmdp_optimum
from bettersafe.mdp.values import expected_return
from bettersafe.methods import s_opt
from bettersafe.methods.b_opt import b_opt
from bettersafe.methods.g_opt import g_opt
from bettersafe.methods.h_opt import Trial, try_candidates
from bettersafe.methods.lagrangian import lagrangian, mixture_return
from bettersafe.model import estimate_model
from bettersafe.posterior.judge import DRAWS, Question
from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.studies.sweep import Study

if TYPE_CHECKING:
    from bettersafe.logs.dataset import Dataset
    from bettersafe.mdp.constrained import CMDPOptimum
    from bettersafe.mdp.mdp import MDP
    from bettersafe.model import Model
    from bettersafe.posterior.outcomes import Outcomes
    from bettersafe.typing import Floats

Row = dict[str, Any]
QUALITIES = (0.1, 0.4, 0.7, 0.9)
SIZES = (10, 50, 500, 2000)
PREFERENCES = ("1,0", "0,1", "1,1")
SAFETY_SHARE = 0.3
LEAST_FAILURES = 2
"""Draws of B-OPT in which a policy of risk δ fails, on average, at least: with fewer the test is coarse, and passes little."""

TOL = 1e-6
"""Losses below this share of a return's range are rounding, not failures."""

GOAL_RANGE = 1100.0
"""Range of the goal's return: from −1/(1−γ) = −100 to +1000."""

CONVENTIONS: dict[str, Any] = {
    "rewards": "known",  # "known": the true table, as published; "estimated": from the log
    "error_objectives": 1,  # d in the error function; 1 as published, 0 for the true number
    "unseen": "end",
    "max_rounds": 10,
    "completion": "lagrangian",  # of π* where it never goes; "uniform" is another reading
    "ties": "baseline",  # "uniform": where a log has nothing of a state, a solver's interior point, not the baseline's row
    "goal_paid": "on arrival",  # "next step": the published matrices pay one discount later than its episodes
}
"""The conventions of the reproduction; `VARIANTS` changes one at a time."""

VARIANTS: dict[str, dict[str, Any]] = {
    "as in the reproduction": {},
    "rewards estimated": {"rewards": "estimated"},
    "d in the error function": {"error_objectives": 0},
    "unseen pairs worth the baseline": {"rewards": "estimated", "unseen": "baseline"},
    "ties go anywhere": {"ties": "uniform"},
    "up to 100 rounds": {"max_rounds": 100},
    "π* completed uniformly": {"completion": "uniform"},
    "goal paid one step late in the model": {"goal_paid": "next step"},
}

PAPER_METHODS = (
    "linearized", "adv-linearized", "s-opt 0.01", "s-opt 0.1", "s-opt 1.0", "h-opt published dr", "h-opt paper dr",
    "h-opt sequential dr",
)  # fmt: skip
TUNED_EPSILONS = (1e-4, 1e-3, 1e-2, 0.1, 0.5, 1.0, 2.0, 5.0)
TUNED_ESTIMATORS = ("is", "pdis", "wis", "cwpdis", "dr")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a study of this family varies.

    Attributes:
        about: One line for the list of studies.
        methods: The methods, in words.
        delta: δ.
        preferences: λ, as text.
        kinds: Kinds of pits; d − 1.
        cmdps: CMDPs of the full study.
        variants: Names of `VARIANTS`.
        sizes: Sizes |D| of the log.
    """

    about: str
    methods: tuple[str, ...]
    delta: float = 0.1
    preferences: tuple[str, ...] = PREFERENCES
    kinds: tuple[int, ...] = (1,)
    cmdps: int = 100
    variants: tuple[str, ...] = ("as in the reproduction",)
    sizes: tuple[int, ...] = SIZES

    @property
    def has_b_opt(self) -> bool:
        """Whether B-OPT is among the methods: such a study is ours, not the paper's, and takes any δ."""
        return "b-opt" in self.methods


PLANS: dict[str, Plan] = {
    "gridworld/fixed": Plan(
        about="Figure 1(a): fixed parameters, δ = 0.1, and Soft-SPIBB on the scalarised reward (Appendix A)",
        methods=(*PAPER_METHODS, "soft-spibb 0.1", "soft-spibb 1.0"),
    ),
    "gridworld/tuned": Plan(
        about="Figure 1(b): parameters tuned on one CMDP, δ = 0.1",
        methods=(
            "linearized",
            "adv-linearized",
            *(f"s-opt {epsilon:g}" for epsilon in TUNED_EPSILONS),
            *(f"h-opt published {estimator}" for estimator in TUNED_ESTIMATORS),
            *(f"h-opt sequential {estimator}" for estimator in TUNED_ESTIMATORS),
        ),
    ),
    "gridworld/delta-0.9": Plan(about="Fixed parameters with the riskier δ = 0.9", methods=PAPER_METHODS, delta=0.9),
    "gridworld/lagrangian": Plan(
        about="The Lagrangian of Le et al. 2019 beside S-OPT and H-OPT",
        methods=(
            "lagrangian 0.01", "lagrangian 0.1", "lagrangian 1.0", "s-opt 0.01", "s-opt 0.1", "s-opt 1.0",
            "h-opt published dr", "h-opt sequential dr",
        ),
    ),
    "gridworld/scaling": Plan(
        about="Scaling with the number of objectives, d = 1 + {1, 4, 16, 64}",
        methods=(
            "adv-linearized", "s-opt 0.001", "s-opt 0.01", "s-opt 0.1", "s-opt 1.0", "h-opt published dr",
            "h-opt sequential dr",
        ),
        preferences=("1,0",),
        kinds=(1, 4, 16, 64),
        cmdps=10,
    ),
    "gridworld/conventions": Plan(
        about="What each convention of the published code changes, one at a time",
        methods=("linearized", "adv-linearized", "s-opt 0.1", "s-opt 1.0", "h-opt published dr", "h-opt paper dr"),
        cmdps=10,
        variants=tuple(VARIANTS),
    ),
    "gridworld/bopt": Plan(
        about="B-OPT and G-OPT beside the paper's methods, on the logs of Figure 1(a) and with |D| = 200",
        methods=(
            "adv-linearized", "s-opt 0.01", "s-opt 0.1", "s-opt 1.0", "h-opt published dr", "h-opt sequential dr",
            "g-opt 0.1", "g-opt 1.0", "b-opt",
        ),
        sizes=(10, 50, 200, 500, 2000),
    ),
    "gridworld/bopt-scaling": Plan(
        about="B-OPT and G-OPT as the number of objectives grows, d = 1 + {1, 4, 16, 64}, on the logs of gridworld/scaling",
        methods=(
            "adv-linearized", "s-opt 0.01", "s-opt 0.1", "s-opt 1.0", "h-opt published dr", "h-opt sequential dr",
            "g-opt 0.1", "g-opt 1.0", "b-opt", "optimum",
        ),
        preferences=("1,0",),
        kinds=(1, 4, 16, 64),
        cmdps=10,
    ),
}  # fmt: skip


def gridworld_study(study_id: str, *, cmdps: int | None = None, delta: float | None = None, seed: int = 0) -> Study:
    """The study of that id, over ``cmdps`` CMDPs (as many as planned if left out), all drawn from ``seed``, at ``delta``."""
    plan = PLANS[study_id]
    allowed = plan.delta if delta is None else delta
    check_probability("delta", allowed)
    n = plan.cmdps if cmdps is None else cmdps
    if n < 1:
        raise ParameterError(f"a study needs at least 1 CMDP; got {n}.")
    if study_id == "gridworld/tuned" and n < 2:
        raise ParameterError(
            "the tuned study needs at least 2 CMDPs: parameters are chosen on one and used on the others."
        )
    # What only these plans vary is a setting of theirs alone: experiments of the others are still known by the same keys.
    more: dict[str, Any] = {"draws": draws_for(allowed), "sizes": list(plan.sizes)} if plan.has_b_opt else {}
    return Study(
        id=study_id,
        version=1,
        jobs=tuple(
            {
                "cmdp": cmdp,
                "quality": quality,
                "kinds": kinds,
                "variant": variant,
                "delta": allowed,
                "seed": seed,
                "preferences": list(plan.preferences),
                "methods": list(plan.methods),
                **more,
            }
            for cmdp in range(n)
            for variant in plan.variants
            for kinds in plan.kinds
            for quality in QUALITIES
        ),
        work="bettersafe.studies.gridworld:experiment",
    )


def draws_for(delta: float) -> int:
    """Draws of B-OPT under every prior at this δ."""
    return max(DRAWS, math.ceil(LEAST_FAILURES / delta))


def experiment(settings: dict[str, Any]) -> list[Row]:
    """All sizes, preferences and methods on one CMDP with one baseline; the work of the study."""
    conventions = {**CONVENTIONS, **VARIANTS[settings["variant"]]}
    seed, cmdp, kinds, quality = (settings[key] for key in ("seed", "cmdp", "kinds", "quality"))
    gridworld, optimum, redraws = feasible_gridworld(np.random.default_rng([seed, cmdp, kinds]), n_pit_kinds=kinds)
    truth = true_mdp(gridworld.world)
    baseline = quality_baseline(_completed(optimum, conventions["completion"]), quality)
    rewards = known_rewards(gridworld).copy()
    if conventions["goal_paid"] == "next step":
        # as the published matrices: −1 on arrival, +1000 for acting in the goal, discounted once more
        arrival = (rewards[0] + 1.0) / 1001.0  # probability of arriving
        rewards = np.concatenate([(-1.0 + arrival * 1000.0 * truth.discount[0])[None], rewards[1:]])
    before = expected_return(truth, baseline)
    rows = []
    for size in settings.get("sizes", SIZES):
        # Data depend on CMDP, baseline and size alone: every method, preference and convention sees the same log.
        rng = np.random.default_rng([seed, cmdp, kinds, round(10 * quality), size])
        data = sample_episodes(gridworld.world, baseline, size, rng, horizon=HORIZON)
        train, safety = split(data, (1.0 - SAFETY_SHARE, SAFETY_SHARE), rng)
        case = Case(
            truth=truth,
            baseline=baseline,
            before=before,
            model=_estimate(data, settings["delta"], conventions, rewards, baseline),
            train_model=_estimate(train, settings["delta"], conventions, rewards, baseline),
            data=data,
            safety=safety,
            delta=settings["delta"],
            draws=settings.get("draws", DRAWS),
            draws_seed=int(rng.integers(2**32)),
            max_rounds=conventions["max_rounds"],
            ties=conventions["ties"],
        )
        for text in settings["preferences"]:
            preference = np.zeros(truth.n_objectives)
            given = [float(weight) for weight in text.split(",")]
            preference[: len(given)] = given
            for method, after in case.returns(settings["methods"], preference).items():
                rows.append(
                    {
                        "episodes": size,
                        "preference": text,
                        **_result(method, preference, before, after),
                        "redraws": redraws,
                    }
                )
    return rows


def _completed(optimum: CMDPOptimum, completion: str) -> Floats:
    """π* [X, A]; "uniform" forgets what it would do where it never goes."""
    if completion == "lagrangian":
        return optimum.policy
    n_actions = optimum.policy.shape[1]
    visits = optimum.occupancy.reshape(-1, n_actions).sum(axis=1)  # every pair of a gridworld is stored
    return np.where(visits[:, None] > 1e-12, optimum.policy, 1.0 / n_actions)


def _estimate(data: Dataset, delta: float, conventions: dict[str, Any], rewards: Floats, baseline: Floats) -> Model:
    return estimate_model(
        data,
        delta=delta,
        unseen=conventions["unseen"],
        baseline=baseline,
        rewards=rewards if conventions["rewards"] == "known" else None,
        error_objectives=conventions["error_objectives"] or None,
    )


def _result(method: str, preference: Floats, before: Floats, after: Floats) -> Row:
    """What is recorded of one policy; of several kinds of pits, the one that fared worst."""
    name, _, parameter = method.partition(" ")
    gain = after - before
    tolerance = TOL * np.append(GOAL_RANGE, np.full(gain.size - 1, 100.0))
    worst = 1 + int(np.argmin(gain[1:]))
    return {
        "method": name,
        "parameter": parameter,
        "improvement": float(preference @ gain),
        "failure": bool(np.any(gain < -tolerance)),
        "goal": float(after[0]),
        "goal_baseline": float(before[0]),
        "pits": float(after[worst]),
        "pits_baseline": float(before[worst]),
    }


@dataclass(frozen=True, kw_only=True)
class Case:
    """One log: what the methods are given, and the truth that they are not."""

    truth: MDP
    baseline: Floats
    before: Floats
    model: Model
    train_model: Model
    data: Dataset
    safety: Dataset
    delta: float
    draws: int
    draws_seed: int  # one for every log, or the errors of all draws would be alike
    max_rounds: int
    ties: str = "baseline"

    @cached_property
    def outcomes(self) -> Outcomes:
        """The log as the posterior needs it. What a step pays goes with where it led, so nothing need be known: of the table of
        expected rewards, the goal's would give away the probabilities of reaching it.
        """
        return gather_outcomes(self.data)

    def returns(self, methods: list[str], preference: Floats) -> dict[str, Floats]:
        """True returns [d] of the policies that the methods make for ``preference``."""
        estimators = [method.split()[2] for method in methods if method.startswith("h-opt ")]
        trial = self.trial(preference, list(dict.fromkeys(estimators))) if estimators else None
        found: dict[str, Floats] = {}
        for method in methods:
            name, *words = method.split()
            if name == "optimum":
                found[method] = cmdp_optimum(self.truth, self.before[1:]).returns
                continue
            if name == "lagrangian":
                mixture = lagrangian(self.model, self.baseline, preference=preference, eta=float(words[0]))
                found[method] = mixture_return(self.truth, mixture)
                continue
            if trial is not None and name == "h-opt":
                selection: Any = words[0]
                rule = SafetyRule(
                    delta=self.delta,
                    zeta=np.zeros(self.before.size),
                    estimator=words[1],
                    comparison="published" if selection == "published" else "paired",
                    strict=False,  # the baseline plays every action
                )
                policy = trial.choose(rule, selection, preference)
            else:
                policy = self.improved(name, words, preference)
            found[method] = expected_return(self.truth, policy)
        return found

    def improved(self, name: str, words: list[str], preference: Floats) -> Floats:
        """The policy of a method that uses all the data."""
        common: dict[str, Any] = {"preference": preference, "max_rounds": self.max_rounds}
        if name == "linearized":
            return self.settled(s_opt.linearized(self.model, self.baseline, **common).policy, self.model)
        if name == "adv-linearized":
            return self.settled(s_opt.adv_linearized(self.model, self.baseline, **common).policy, self.model)
        if name == "g-opt":
            return g_opt(self.model, self.baseline, preference=preference, epsilon=float(words[0])).policy
        if name == "b-opt":
            return b_opt(
                self.outcomes,
                self.model,
                self.baseline,
                preference=preference,
                question=Question(delta=self.delta, draws=self.draws, seed=self.draws_seed),
            ).improvement.policy
        within_budget = {"s-opt": s_opt.s_opt, "soft-spibb": s_opt.soft_spibb}
        if name not in within_budget:
            raise ParameterError(f"the study knows no method {name!r}.")
        return within_budget[name](self.model, self.baseline, epsilon=float(words[0]), **common).policy

    def settled(self, policy: Floats, model: Model) -> Floats:
        """The policy as it is, or with what an interior-point method does where every policy is as good: in states that the
        log has nothing of, all actions alike.
        """
        if self.ties == "baseline":
            return policy
        visits = np.bincount(model.mdp.pair_state, weights=model.counts, minlength=policy.shape[0])
        return np.where(visits[:, None] > 0, policy, 1.0 / policy.shape[1])

    def trial(self, preference: Floats, estimators: list[str]) -> Trial:
        """H-OPT's candidates on the safety part, for all estimators and both comparisons."""
        model = self.train_model
        proposal = s_opt.adv_linearized(model, self.baseline, preference=preference, max_rounds=self.max_rounds).policy

        def evaluate(policy: Floats) -> dict[str, Evaluation]:
            return evaluate_many(self.safety, policy, self.baseline, estimators=estimators, model=model)

        return try_candidates(
            self.settled(proposal, model),
            self.baseline,
            evaluate,
            estimators=estimators,
            baseline_return=expected_return(model.mdp, self.baseline),
        )
