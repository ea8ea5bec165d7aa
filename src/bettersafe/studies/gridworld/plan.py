"""The gridworld study: policy improvement from logs of gridworlds with pits, with true returns.

An experiment is one CMDP (a seed) and one quality ρ of its baseline π_b = ρ π* + (1−ρ) uniform. For every size |D| of the log
and every preference λ, each method computes a policy, for which the study records:

    improvement   J_λ(π) − J_λ(π_b) in the true MDP
    failure       for some k, J_k(π) < J_k(π_b) − TOL · range_k

Methods are written as text (`bettersafe.studies.case`). The conventions of the published code are settings (`CONVENTIONS`), so
that the effect of each can be measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from bettersafe.errors import ParameterError, check_probability
from bettersafe.studies.case import draws_for
from bettersafe.studies.sweep import Study

QUALITIES = (0.1, 0.4, 0.7, 0.9)
SIZES = (10, 50, 500, 2000)
"""Episodes in the log, |D|, of the paper's studies."""

PREFERENCES = ("1,0", "0,1", "1,1")

CONVENTIONS: dict[str, Any] = {
    "rewards": "known",  # "known": the true table, as published; "estimated": from the log
    "error_objectives": 1,  # d in the error function: 1 as published; 0 means the actual number
    "vocabulary": "declared",  # |X| in the error function: all states, as published; "seen": those in the log
    "unseen": "end",
    "max_rounds": 10,
    "completion": "lagrangian",  # π* in states that it never visits; alternative: "uniform"
    "ties": "baseline",  # policy in states without data; "uniform" like a solver's interior point
    "goal_paid": "on arrival",  # "next step": the published matrices discount the goal once more than its episodes
}
"""Conventions of the reproduction; `VARIANTS` change one at a time."""

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
    "h-opt paired dr", "h-opt uncovered dr", "h-opt sequential dr",
)  # fmt: skip
LAGRANGIAN_GRID = (
    *(f"lagrangian {eta}" for eta in (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)),
    *(f"lagrangian 0.01 norm={norm}" for norm in (1, 50, 100)),
    "lagrangian 0.01 tol=0.001",
    *(f"lagrangian 0.01 max_rounds={rounds}" for rounds in (100, 500)),
)
"""The paper's grids of the Lagrangian: all seven η, then B, ω and the number of rounds, one at a time at η = 0.01."""

TUNED_EPSILONS = (1e-4, 1e-3, 1e-2, 0.1, 0.5, 1.0, 2.0, 5.0)
TUNED_ESTIMATORS = ("is", "pdis", "wis", "cwpdis", "dr")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Settings of a gridworld study.

    Attributes:
        about: One-line description for the list of studies.
        methods: The methods, as text.
        delta: δ.
        preferences: λ, as text.
        kinds: Numbers of kinds of pits, d − 1.
        cmdps: Number of CMDPs in the full study.
        variants: Names of `VARIANTS`.
        sizes: Sizes |D| of the log.
        tuned: Whether parameters are tuned on the first CMDP and evaluated on the others.
        drawn: Figures of the study: means against |D| (with a grid of all cells), a figure of its own, or only tables.
        heading: Heading of the figures of means.
        scattered: Methods in the figure of true returns on one CMDP; without any, that figure is left out.
    """

    about: str
    methods: tuple[str, ...]
    delta: float = 0.1
    preferences: tuple[str, ...] = PREFERENCES
    kinds: tuple[int, ...] = (1,)
    cmdps: int = 100
    variants: tuple[str, ...] = ("as in the reproduction",)
    sizes: tuple[int, ...] = SIZES
    tuned: bool = False
    drawn: Literal["means", "lagrangian", "scaling", "conventions", "nothing"] = "means"
    heading: str = "Fixed parameters"
    scattered: tuple[str, ...] = ()

    @property
    def has_b_opt(self) -> bool:
        """Whether B-OPT is among the methods. Such a study is not in the paper."""
        return "b-opt" in self.methods


PLANS: dict[str, Plan] = {
    "gridworld/fixed": Plan(
        about="Figure 1(a): fixed parameters, δ = 0.1, and Soft-SPIBB on the scalarised reward (Appendix A)",
        methods=(*PAPER_METHODS, "soft-spibb 0.1", "soft-spibb 1.0"),
        scattered=("linearized", "adv-linearized", "s-opt 0.1", "h-opt published dr", "h-opt sequential dr"),
    ),
    "gridworld/tuned": Plan(
        about="Figure 1(b): parameters tuned on one CMDP, δ = 0.1",
        methods=(
            "linearized",
            "adv-linearized",
            *(f"s-opt {epsilon:g}" for epsilon in TUNED_EPSILONS),
            *(f"h-opt {rule} {estimator}" for rule in ("published", "paper", "sequential") for estimator in TUNED_ESTIMATORS),
        ),
        tuned=True,
        heading="Parameters tuned on one CMDP",
        scattered=("linearized", "adv-linearized", "s-opt tuned", "h-opt published tuned", "h-opt sequential tuned"),
    ),
    "gridworld/delta-0.9": Plan(about="Fixed parameters with the riskier δ = 0.9", methods=PAPER_METHODS, delta=0.9),
    "gridworld/lagrangian": Plan(
        about="The Lagrangian of Le et al. 2019 compared with S-OPT and H-OPT",
        methods=(
            "lagrangian 0.01", "lagrangian 0.1", "lagrangian 1.0", "s-opt 0.01", "s-opt 0.1", "s-opt 1.0",
            "h-opt published dr", "h-opt paper dr", "h-opt sequential dr",
        ),
        drawn="lagrangian",
    ),
    "gridworld/lagrangian-grid": Plan(
        about="The Lagrangian over the paper's grids of η, B, ω and rounds, one at a time (tables only)",
        methods=LAGRANGIAN_GRID,
        cmdps=10,
        drawn="nothing",
    ),
    "gridworld/scaling": Plan(
        about="Scaling with the number of objectives, d = 1 + {1, 4, 16, 64}",
        methods=(
            "adv-linearized", "s-opt 0.001", "s-opt 0.01", "s-opt 0.1", "s-opt 1.0", "h-opt published dr",
            "h-opt paper dr", "h-opt sequential dr",
        ),
        preferences=("1,0",),
        kinds=(1, 4, 16, 64),
        cmdps=10,
        drawn="scaling",
    ),
    "gridworld/conventions": Plan(
        about="Effect of each convention of the published code, one at a time",
        methods=("linearized", "adv-linearized", "s-opt 0.1", "s-opt 1.0", "h-opt published dr", "h-opt paired dr"),
        cmdps=10,
        variants=tuple(VARIANTS),
        drawn="conventions",
    ),
    "gridworld/bopt": Plan(
        about="B-OPT and G-OPT compared with the paper's methods, on the logs of Figure 1(a) and with |D| = 200",
        methods=(
            "adv-linearized", "s-opt 0.01", "s-opt 0.1", "s-opt 1.0", "h-opt published dr", "h-opt uncovered dr",
            "g-opt 0.1", "g-opt 1.0", "b-opt",
        ),
        sizes=(10, 50, 200, 500, 2000),
        heading="B-OPT and G-OPT beside the others",
        scattered=("adv-linearized", "s-opt 0.1", "h-opt uncovered dr", "g-opt 1.0", "b-opt"),
    ),
    "gridworld/bopt-scaling": Plan(
        about="B-OPT and G-OPT with more objectives, d = 1 + {1, 4, 16, 64}, on the logs of gridworld/scaling",
        methods=(
            "adv-linearized", "s-opt 0.01", "s-opt 0.1", "s-opt 1.0", "h-opt published dr", "h-opt uncovered dr",
            "g-opt 0.1", "g-opt 1.0", "b-opt", "optimum",
        ),
        preferences=("1,0",),
        kinds=(1, 4, 16, 64),
        cmdps=10,
        drawn="scaling",
    ),
}  # fmt: skip


def gridworld_study(study_id: str, *, cmdps: int | None = None, delta: float | None = None, seed: int = 0) -> Study:
    """Make a gridworld study with ``cmdps`` CMDPs and risk ``delta`` (defaults: those of its plan)."""
    plan = PLANS[study_id]
    allowed = plan.delta if delta is None else delta
    check_probability("delta", allowed)
    n = plan.cmdps if cmdps is None else cmdps
    if n < 1:
        raise ParameterError(f"a study needs at least 1 CMDP; got {n}.")
    if plan.tuned and n < 2:
        raise ParameterError(
            "the tuned study needs at least 2 CMDPs: parameters are chosen on one and used on the others."
        )
    # Settings that only these plans vary are left out of the others, so that the keys of their experiments do not change.
    more: dict[str, Any] = {"draws": draws_for(allowed), "sizes": list(plan.sizes)} if plan.has_b_opt else {}
    return Study(
        id=study_id,
        version=2,  # 2: H-OPT's rules
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
        work="bettersafe.studies.gridworld.experiment:experiment",
    )
