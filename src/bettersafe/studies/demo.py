"""The demonstration: improving on clinicians in a simulator of sepsis treatment, where true returns are known.

A cohort is drawn from the embedded ICU-Sepsis benchmark under the clinicians' policy. There are two objectives: survival,
and avoiding treatments that are rare in the patient's state. Two policies are computed from the log, by plain
reinforcement learning (Linearized) and by S-OPT, and evaluated exactly in the simulator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bettersafe._system.files import check_free, file_digest
from bettersafe.envs.icu_sepsis import clinician_policy, icu_sepsis
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.errors import RunError, check_integer, check_options, check_path, check_type
from bettersafe.logs.counts import Counts, count, with_rare
from bettersafe.logs.dataset import write_dataset
from bettersafe.mdp.values import expected_return
from bettersafe.methods.s_opt import linearized, s_opt
from bettersafe.model import Model, estimate_baseline, estimate_model
from bettersafe.runs.info import ESTIMATED, DataInfo
from bettersafe.runs.run import MARK, make_run, save_run

if TYPE_CHECKING:
    from bettersafe.logs.dataset import Dataset
    from bettersafe.mdp.mdp import MDP
    from bettersafe.methods.result import Improvement
    from bettersafe.typing import Floats, Json


COHORT = 20_954
"""Patients in the paper's cohort."""

RARE_BELOW, RARE_REWARD = 10, -10.0
"""The paper's rare-treatment objective: −10 for a treatment given fewer than 10 times in the state."""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Results of the demonstration; returns have shape [d], with objectives (survival, rare treatments)."""

    dataset: Dataset
    counts: Counts
    model: Model
    safe: Improvement
    greedy: Improvement
    true_clinician: Floats
    true_safe: Floats
    true_greedy: Floats
    seed: int

    @property
    def rows(self) -> tuple[tuple[str, Floats, Floats], ...]:
        """(policy, returns in the estimated model [d], true returns [d])."""
        return (
            ("the clinicians", self.safe.baseline_return, self.true_clinician),
            ("plain RL", self.greedy.policy_return, self.true_greedy),
            ("bettersafe", self.safe.policy_return, self.true_safe),
        )


def run_demo(*, patients: int = COHORT, epsilon: float = 0.1, seed: int = 0) -> Demo:
    """Draw a cohort, compute two policies from it, and evaluate them in the simulator.

    Args:
        patients: Number of patients in the cohort.
        epsilon: Budget ε of S-OPT.
        seed: Seed of the cohort.

    Examples:
        >>> from bettersafe.studies import run_demo
        >>> [policy for policy, _, _ in run_demo(patients=500).rows]
        ['the clinicians', 'plain RL', 'bettersafe']
    """
    world = icu_sepsis()
    check_integer("seed", seed, least=0)
    dataset = sample_episodes(world, clinician_policy(), patients, np.random.default_rng(seed))
    # As for a real log, the clinicians' policy is unknown and must be estimated.
    dataset = replace(dataset, baseline_prob=None)
    counts = with_rare(count(dataset), name="rare_treatment", below=RARE_BELOW, reward=RARE_REWARD)
    baseline = estimate_baseline(counts)
    model = estimate_model(counts, unseen="end", vocabulary="declared")  # as in the published code
    preference = np.array([1.0, 1.0])
    safe = s_opt(model, baseline, preference=preference, epsilon=epsilon)
    greedy = linearized(model, baseline, preference=np.array([1.0, 0.0]))
    truth = _true_mdp(counts)
    return Demo(
        dataset=dataset,
        counts=counts,
        model=model,
        safe=safe,
        greedy=greedy,
        true_clinician=expected_return(truth, baseline),
        true_safe=expected_return(truth, safe.policy),
        true_greedy=expected_return(truth, greedy.policy),
        seed=seed,
    )


def demo_json(demo: Demo) -> Json:
    """The results as JSON; the rare-treatment objective is a (negative) reward here."""
    names = [objective.name for objective in demo.counts.objectives]
    return {
        "patients": demo.dataset.n_episodes,
        "decisions": demo.dataset.n_rows,
        "seed": demo.seed,
        "objectives": names,
        "policies": {
            policy: {
                "estimated": dict(zip(names, estimated.tolist(), strict=True)),
                "true": dict(zip(names, true.tolist(), strict=True)),
            }
            for policy, estimated, true in demo.rows
        },
    }


def check_demo_free(folder: Path, *, force: bool) -> None:
    """Raise if ``folder`` has a demonstration already and ``force`` is false."""
    cohort = folder / "cohort.parquet"
    if cohort.exists() and not force:
        raise RunError(f"{cohort} exists; choose another name, or replace it with `force`.")
    check_free(folder / "run", mark=MARK, force=force)


def write_demo(demo: Demo, folder: str | Path, *, force: bool = False) -> None:
    """Write the cohort, the run and a second cohort, so that the other commands can be tried on them.

    Args:
        demo: Result of `run_demo`.
        folder: Folder to write to.
        force: Replace existing files.

    Examples:
        >>> from bettersafe.studies import run_demo, write_demo
        >>> write_demo(run_demo(patients=500), "demo")
        >>> bettersafe.load_run("demo/run").info.method
        's-opt'
    """
    check_type("demo", demo, Demo)
    check_path("folder", folder)
    check_options(force=force)
    folder = Path(folder)
    check_demo_free(folder, force=force)
    folder.mkdir(parents=True, exist_ok=True)
    write_dataset(demo.dataset, folder / "cohort.parquet")
    later = sample_episodes(
        icu_sepsis(), clinician_policy(), demo.dataset.n_episodes, np.random.default_rng([demo.seed, 1])
    )
    write_dataset(replace(later, baseline_prob=None), folder / "later.parquet")
    run = make_run(
        demo.safe,
        demo.model,
        demo.counts.objectives,
        baseline_source=ESTIMATED,
        seed=demo.seed,
        data=DataInfo(
            path=str(folder / "cohort.parquet"),
            sha256=file_digest(folder / "cohort.parquet"),
            rows=demo.counts.n_rows,
            episodes=demo.counts.n_episodes,
        ),
        settings={
            "derived": [
                {"name": demo.counts.objectives[-1].name, "below": RARE_BELOW, "reward": RARE_REWARD},
            ]
        },
    )
    save_run(run, folder / "run", force=force)


def _true_mdp(counts: Counts) -> MDP:
    """The simulator's MDP with the rare-treatment objective of the cohort as second reward."""
    mdp = true_mdp(icu_sepsis())
    visits = np.zeros((mdp.n_states, mdp.n_actions))
    states, actions = counts.state_labels.astype(np.int64), np.arange(mdp.n_actions)
    visits[states[counts.pair_state], actions[counts.pair_action]] = counts.pair_count
    rare = np.where(visits < RARE_BELOW, RARE_REWARD, 0.0)[mdp.pair_state, mdp.pair_action]
    return replace(
        mdp,
        reward=np.vstack([mdp.reward, rare]),
        discount=np.append(mdp.discount, mdp.discount[0]),
        unseen_value=np.zeros((2, mdp.n_states)),
    )
