"""The sepsis study: who gets treated how, judged by doubly robust estimates and, where it is known, by the truth.

An experiment is one split of a cohort into train / valid / test. Two objectives: survival (±100 at the end), and not giving
treatments that are rare in the patient's state, r_1 = −10 where the training part has a pair fewer than 10 times. For every
preference λ each method makes a policy from the training part, of which is recorded:

    dr, wdr       off-policy estimates on the test part, and on the valid part (where ε is chosen)
    ess           how many test episodes effectively carry them
    model         what the model that it was made in says: the in-sample opinion
    true          the exact value in the simulator (route A alone)

Policies are made in a model of the training part in which pairs never seen lead to death (``unseen``), around π_b of the
training part. How they are judged depends on the preset:

    published     as the published code: by the same model and π_b; episodes with a pair never seen are dropped, each
                  episode's estimate is clipped, H-OPT by the published rule
    ours          nothing is dropped or clipped. Weights are against π_b of all parts together, valid and test included, so
                  that no logged action has probability 0 (and the weights of the training part's π_b are not all 1). dr and
                  wdr have a model of their own, of the training part, in which what was never seen is worth what π_b is
                  worth there. H-OPT is tested in sequence

Unlike the published code, policy iteration starts from π_b and not from the uniform policy, which is not in S-OPT's
feasible set.

Route A draws cohorts from the embedded ICU-Sepsis benchmark; route B reads what `sepsis prepare` made of MIMIC-III.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bettersafe._system.files import file_digest
from bettersafe.errors import ParameterError, check_choice
from bettersafe.studies.sepsis.mimic import PREPARED, find_splits
from bettersafe.studies.sweep import Study

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

PATIENTS = 20_954
FEWEST = 100
SEEDS = 10
SHARES = (0.7, 0.1, 0.2)
RARE_BELOW, RARE_REWARD = 10, -10.0
REMOVED_BELOW = 100
"""The paper's side experiment: pairs seen fewer times than this are removed from the training part."""

PREFERENCES = ("1,0", "1,1", "0,0", "0,1")
EPSILONS = (0.0, 0.001, 0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0)
DELTAS = (0.1, 0.3, 0.5, 0.7, 0.9)
HOPT_DELTA = DELTAS[0]
"""Of H-OPT in the main table."""

G_OPT_EPSILONS = (0.1, 1.0)
BOPT_DELTA = 0.1
OPE: tuple[str, ...] = ("dr", "wdr")
CHOSEN = "chosen"
"""S-OPT's parameter where ε is chosen as a user would."""

POLICIES: dict[str, tuple[str, ...]] = {
    "linearized": ("",),
    "adv-linearized": ("",),
    "s-opt": tuple(f"{epsilon:g}" for epsilon in EPSILONS),
    "h-opt": tuple(f"{estimator} {delta:g}" for estimator in OPE for delta in DELTAS),
    "g-opt": tuple(f"{epsilon:g}" for epsilon in G_OPT_EPSILONS),
    "b-opt": (f"{BOPT_DELTA:g}",),
}
"""The methods, each with its parameters: ε, or estimator and δ, or δ."""

MAIN = {**POLICIES, "s-opt": (CHOSEN,), "h-opt": (f"dr {HOPT_DELTA:g}",)}
"""Those of the main table."""

PUBLISHED = ("linearized", "adv-linearized", "s-opt", "h-opt")
"""Methods that the paper has."""

SAID = ("outcome", "iv_bins")
"""How a cohort was prepared, as far as tables and figures must say it."""

MAX_ROUNDS = 10
LARGE_DOSE = 3
"""Vasopressor bins from here on are large doses: above the median of the non-zero ones."""

CHOICES: dict[str, tuple[str, ...]] = {
    "preset": ("ours", "published"),
    "cohort": ("fresh", "fixed"),
    "baseline": ("estimated", "known"),
    "unseen": ("death", "end", "baseline"),
}
DEFAULTS: dict[str, Any] = {name: choices[0] for name, choices in CHOICES.items()}

LEFT_OUT = ("b-opt",)
"""What the option ``without`` may leave out: most of the study's time is B-OPT's."""

ABOUT: dict[str, str] = {
    "sepsis/icu": "Table 1 and its companions on the ICU-Sepsis benchmark, with the truth",
    "sepsis/icu-published": "The same with the published code's estimates: one cohort, dropping and clipping",
    "sepsis/mimic": "The same on MIMIC-III, as 'sepsis prepare' wrote it; without a truth",
}
"""One line about each study of this family."""

SETTINGS: dict[str, dict[str, str]] = {
    "sepsis/icu": {},
    "sepsis/icu-published": {"preset": "published", "cohort": "fixed"},
}
"""What the studies of route A change of the defaults."""


def sepsis_study(
    study_id: str, *, seeds: int | None = None, seed: int = 0, patients: int = PATIENTS, **options: Any
) -> Study:
    """Route A over ``seeds`` cohorts or splits (10 if left out); options are those of `DEFAULTS`, and ``without``."""
    settings = _settings({**SETTINGS[study_id], **options})
    n = SEEDS if seeds is None else seeds
    if n < 1:
        raise ParameterError(f"a study needs at least 1 seed; got {n}.")
    if patients < FEWEST:
        raise ParameterError(f"a cohort needs at least {FEWEST} patients for three parts; got {patients}.")
    return Study(
        id=study_id,
        version=3,  # 2: parts are rounded as published, 14,667 / 2,095 / 4,192; 3: G-OPT and B-OPT
        jobs=tuple({"repetition": i, "seed": seed, "patients": patients, **settings} for i in range(n)),
        work="bettersafe.studies.sepsis.experiment:icu_experiment",
    )


def mimic_study(
    folders: Sequence[str | os.PathLike[str]], *, seeds: int | None = None, seed: int = 0, **options: Any
) -> Study:
    """Route B on the splits that `sepsis prepare` left in ``folders``, an experiment for each; without a truth.

    Args:
        folders: Prepared splits, or folders that hold some; all of one cohort, prepared alike.
        seeds: Use so many of them, the first; all if left out.
        seed: 0: the splits were drawn when they were prepared.
        options: Those of `DEFAULTS`, and ``without``.
    """
    settings = _settings(options)
    if seed != 0:
        raise ParameterError(
            f"sepsis/mimic draws nothing; its splits are drawn when they are prepared, by `prepare_mimic` with `seed` {seed}."
        )
    splits = find_splits(folders)
    if seeds is not None and not 1 <= seeds <= len(splits):
        raise ParameterError(
            f"seeds must be from 1 to {len(splits)}, the number of prepared splits; got {seeds}. Prepare more with"
            " `prepare_splits`."
        )
    return Study(
        id="sepsis/mimic",
        version=2,
        jobs=tuple(
            {
                "repetition": i,
                "seed": info["settings"]["seed"],
                "folder": str(place.resolve()),
                "prepared": file_digest(place / PREPARED)[:16],  # what is prepared anew is another experiment
                **{name: info["settings"][name] for name in SAID},
                **settings,
            }
            for i, (place, info) in enumerate(splits[:seeds])
        ),
        work="bettersafe.studies.sepsis.experiment:mimic_experiment",
    )


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    """The defaults with these over them, each checked; ``without`` is there only when given."""
    known = {**CHOICES, "without": LEFT_OUT}
    for name, value in options.items():
        check_choice("option", name, tuple(known))
        check_choice(name, value, known[name])
    return {**DEFAULTS, **options}
