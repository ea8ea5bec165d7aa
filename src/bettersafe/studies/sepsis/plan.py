"""The sepsis study: treatment policies, evaluated by doubly robust estimates and, in a simulator, exactly.

An experiment is one split of a cohort into train / valid / test. There are two objectives: survival (±100 at the end), and
avoiding treatments that are rare in the patient's state, r_1 = −10 for pairs with fewer than 10 visits in the training part.
For every preference λ, each method computes a policy from the training part, for which the study records:

    dr, wdr       off-policy estimates on the test part, and on the valid part (where ε is chosen)
    ess           effective sample size of the estimates on the test part
    model         in-sample estimate by the model from which the policy was computed
    true          exact value in the simulator (route A only)

Policies are computed from a model of the training part in which unseen pairs lead to death (``unseen``), and from π_b of the
training part. The evaluation depends on the preset:

    published     as in the published code: with the same model and π_b; episodes with an unseen pair are dropped, the
                  estimate of each episode is clipped, and H-OPT uses the published rule
    ours          nothing is dropped or clipped. Importance weights use π_b of all parts together, valid and test included, so
                  that no logged action has probability 0 (the weights of the training part's π_b are then not all 1). dr and
                  wdr use a separate model of the training part, in which unseen pairs have the value of π_b. H-OPT uses the
                  sequential rule with the coverage rule, as `h_opt` and the command do

Unlike in the published code, policy iteration starts from π_b and not from the uniform policy, which is not in S-OPT's
feasible set.

Route A draws cohorts from the embedded ICU-Sepsis benchmark. Route B reads MIMIC-III as written by `sepsis prepare`.
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

    from bettersafe.studies.sweep import Settings

PATIENTS = 20_954
FEWEST = 100
SEEDS = 10
SHARES = (0.7, 0.1, 0.2)
RARE_BELOW, RARE_REWARD = 10, -10.0
REMOVED_BELOW = 100
"""The paper's side experiment removes pairs seen fewer times than this from the training part."""

PREFERENCES = ("1,0", "1,1", "0,0", "0,1")
EPSILONS = (0.0, 0.001, 0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0)
DELTAS = (0.1, 0.3, 0.5, 0.7, 0.9)
HOPT_DELTA = DELTAS[0]
"""δ of H-OPT in the main table."""

G_OPT_EPSILONS = (0.1, 1.0)
BOPT_DELTA = 0.1
OPE: tuple[str, ...] = ("dr", "wdr")
CHOSEN = "chosen"
"""Parameter of S-OPT with ε chosen on the validation part."""

OTHER_RULES = tuple(f"dr {HOPT_DELTA:g} {rule}" for rule in ("uncovered", "paper"))
"""H-OPT by other rules (`rules.RULES`): without the coverage rule, and as written in the paper."""

POLICIES: dict[str, tuple[str, ...]] = {
    "linearized": ("",),
    "adv-linearized": ("",),
    "s-opt": tuple(f"{epsilon:g}" for epsilon in EPSILONS),
    "h-opt": (*(f"{estimator} {delta:g}" for estimator in OPE for delta in DELTAS), *OTHER_RULES),
    "g-opt": tuple(f"{epsilon:g}" for epsilon in G_OPT_EPSILONS),
    "b-opt": (f"{BOPT_DELTA:g}",),
}
"""Parameters of each method: ε, or estimator and δ (and a rule other than the preset's), or δ."""

MAIN = {**POLICIES, "s-opt": (CHOSEN,), "h-opt": (f"dr {HOPT_DELTA:g}", *OTHER_RULES)}
"""Methods and parameters in the main table."""

PUBLISHED = ("linearized", "adv-linearized", "s-opt", "h-opt")
"""Methods in the paper."""

SAID = ("outcome", "iv_bins")
"""Settings of the preparation that tables and figures mention."""

MAX_ROUNDS = 10
LARGE_DOSE = 3
"""Vasopressor bins from this one on are large doses: above the median of the non-zero doses."""

CHOICES: dict[str, tuple[str, ...]] = {
    "preset": ("ours", "published"),
    "cohort": ("fresh", "fixed"),
    "baseline": ("estimated", "known"),
    "unseen": ("death", "end", "baseline"),
}
DEFAULTS: Settings = {name: choices[0] for name, choices in CHOICES.items()}

LEFT_OUT = ("b-opt",)
"""Methods that the option ``without`` can leave out. B-OPT takes most of the study's time."""

ABOUT: dict[str, str] = {
    "sepsis/icu": "Table 1 and related tables on the ICU-Sepsis benchmark, with exact values",
    "sepsis/icu-published": "The sepsis study with the published code's estimates: one cohort, dropping and clipping",
    "sepsis/mimic": "The sepsis study on MIMIC-III, as written by 'sepsis prepare'",
}
"""One-line description of each sepsis study."""

SETTINGS: dict[str, dict[str, str]] = {
    "sepsis/icu": {},
    "sepsis/icu-published": {"preset": "published", "cohort": "fixed"},
}
"""Settings of the route A studies that differ from the defaults."""


def sepsis_study(
    study_id: str, *, seeds: int | None = None, seed: int = 0, patients: int = PATIENTS, **options: Any
) -> Study:
    """Route A with ``seeds`` cohorts or splits (default 10); the options are those in `DEFAULTS`, and ``without``."""
    settings = _settings({**SETTINGS[study_id], **options})
    n = SEEDS if seeds is None else seeds
    if n < 1:
        raise ParameterError(f"a study needs at least 1 seed; got {n}.")
    if patients < FEWEST:
        raise ParameterError(f"a cohort needs at least {FEWEST} patients for three parts; got {patients}.")
    return Study(
        id=study_id,
        version=4,  # 2: parts are rounded as published, 14,667 / 2,095 / 4,192; 3: G-OPT and B-OPT; 4: H-OPT's rules
        jobs=tuple({"repetition": i, "seed": seed, "patients": patients, **settings} for i in range(n)),
        work="bettersafe.studies.sepsis.experiment:icu_experiment",
    )


def mimic_study(
    folders: Sequence[str | os.PathLike[str]], *, seeds: int | None = None, seed: int = 0, **options: Any
) -> Study:
    """Route B: one experiment for each split that `sepsis prepare` wrote to ``folders``, without exact values.

    Args:
        folders: Prepared splits, or folders that contain some; all of one cohort, with the same settings.
        seeds: Number of splits to use, from the first; default all.
        seed: Must be 0, since the splits were drawn when they were prepared.
        options: Options in `DEFAULTS`, and ``without``.
    """
    settings = _settings(options)
    if seed != 0:
        raise ParameterError(
            f"sepsis/mimic takes no seed; its splits are drawn when they are prepared, by `prepare_mimic` with `seed` {seed}."
        )
    splits = find_splits(folders)
    if seeds is not None and not 1 <= seeds <= len(splits):
        raise ParameterError(
            f"seeds must be from 1 to {len(splits)}, the number of prepared splits; got {seeds}. Prepare more with"
            " `prepare_splits`."
        )
    return Study(
        id="sepsis/mimic",
        version=3,  # 3: H-OPT's rules
        jobs=tuple(
            {
                "repetition": i,
                "seed": info["settings"]["seed"],
                "folder": str(place.resolve()),
                "prepared": file_digest(place / PREPARED)[:16],  # preparing again makes another experiment
                **{name: info["settings"][name] for name in SAID},
                **settings,
            }
            for i, (place, info) in enumerate(splits[:seeds])
        ),
        work="bettersafe.studies.sepsis.experiment:mimic_experiment",
    )


def _settings(options: Settings) -> Settings:
    """The defaults updated with the checked options; ``without`` is included only if given."""
    known = {**CHOICES, "without": LEFT_OUT}
    for name, value in options.items():
        check_choice("option", name, tuple(known))
        check_choice(name, value, known[name])
    return {**DEFAULTS, **options}
