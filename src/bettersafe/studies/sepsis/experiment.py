"""Experiment of the sepsis study: one split of a cohort; policies from its training part, evaluated on the other parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bettersafe.envs.icu_sepsis import RETURN_OF_DEATH, clinician_policy, icu_sepsis
from bettersafe.envs.tabular import sample_episodes, true_mdp
from bettersafe.evaluation.evaluate import Evaluation, evaluate_many
from bettersafe.evaluation.held_out import SafetyRule, coverage, logged_return
from bettersafe.logs.counts import Counts, count, with_rare, with_rare_rows
from bettersafe.logs.dataset import Dataset, take_episodes
from bettersafe.mdp.values import expected_return
from bettersafe.methods.b_opt import b_opt
from bettersafe.methods.facts import METHODS
from bettersafe.methods.h_opt import Trial, inside, try_candidates, with_support
from bettersafe.methods.s_opt import adv_linearized
from bettersafe.model import estimate_baseline, estimate_model
from bettersafe.posterior.judge import Question
from bettersafe.posterior.outcomes import gather_outcomes
from bettersafe.studies.rules import RULES
from bettersafe.studies.sepsis.mimic import draw_parts, load_mimic
from bettersafe.studies.sepsis.plan import (
    LARGE_DOSE,
    MAX_ROUNDS,
    OPE,
    POLICIES,
    PREFERENCES,
    RARE_BELOW,
    RARE_REWARD,
    REMOVED_BELOW,
    SHARES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bettersafe.mdp.mdp import MDP
    from bettersafe.model import Model
    from bettersafe.posterior.outcomes import Outcomes
    from bettersafe.studies.sweep import Settings
    from bettersafe.typing import Floats, Ints, Row


def icu_experiment(settings: Settings) -> list[Row]:
    """Route A: a cohort drawn from the simulator, and one split of it."""
    seed, repetition = settings["seed"], settings["repetition"]
    drawn = [seed, 0] if settings["cohort"] == "fixed" else [seed, 1, repetition]
    world, clinicians = icu_sepsis(), clinician_policy()
    cohort = sample_episodes(world, clinicians, settings["patients"], np.random.default_rng(drawn))
    chosen = draw_parts(cohort.n_episodes, np.array(SHARES), np.random.default_rng([seed, 2, repetition]))
    logged = replace(cohort, baseline_prob=None)
    parts = (take_episodes(logged, np.flatnonzero(part)) for part in chosen.values())
    known = clinicians if settings["baseline"] == "known" else None
    mdp = true_mdp(world)

    def truth(rare: Floats) -> MDP:
        return replace(
            mdp,
            reward=np.vstack([mdp.reward, rare[mdp.pair_state, mdp.pair_action]]),
            discount=np.repeat(mdp.discount, 2),
            unseen_value=np.zeros((2, mdp.n_states)),
        )

    return compare(*parts, settings=settings, known_baseline=known, truth=truth)


def mimic_experiment(settings: Settings) -> list[Row]:
    """Route B: the prepared parts of a MIMIC-III cohort."""
    parts = load_mimic(settings["folder"])
    return compare(parts.train, parts.valid, parts.test, settings=settings)


def compare(
    train: Dataset,
    valid: Dataset,
    test: Dataset,
    *,
    settings: Settings,
    known_baseline: Floats | None = None,
    truth: Callable[[Floats], MDP] | None = None,
) -> list[Row]:
    """Rows of all policies on one split, for both routes.

    Args:
        train: Part from which policies are computed.
        valid: Part on which H-OPT tests and ε is chosen.
        test: Part on which policies are evaluated.
        settings: See `DEFAULTS`.
        known_baseline: π_b [X, A], if it is known; otherwise it is estimated.
        truth: Function from the rare-treatment reward [X, A] to the true MDP with both objectives, if there is one.
    """
    main = _Case.make(train, valid, test, settings, known_baseline, truth, below=RARE_BELOW)
    rows = [main.row("0,0", "clinician", "", main.baseline)]
    for text in PREFERENCES:
        preference = np.array([float(weight) for weight in text.split(",")])
        rows += [main.row(text, *found) for found in main.policies(preference, without=settings.get("without"))]
    return [{"rare_below": RARE_BELOW, **row} for row in rows] + [
        {"rare_below": REMOVED_BELOW, **row} for row in _removed(train, valid, test, settings, known_baseline, truth)
    ]


def _removed(
    train: Dataset,
    valid: Dataset,
    test: Dataset,
    settings: Settings,
    known_baseline: Floats | None,
    truth: Callable[[Floats], MDP] | None,
) -> list[Row]:
    """Side experiment: pairs seen fewer than 100 times are removed from the data (Linearized) or a second reward (S-OPT)."""
    case = _Case.make(train, valid, test, settings, known_baseline, truth, below=REMOVED_BELOW)
    rows = [case.row("0,0", "clinician", "", case.baseline)]
    frequent = _without_rare(case.counts, REMOVED_BELOW)
    left = replace(case, model=case.estimate(frequent)).improved("linearized", np.array([1.0, 0.0]))
    rows.append(case.row("1,0", "linearized, rare removed", "", left))
    for name, epsilon in (("adv-linearized", np.inf), ("s-opt", 1.0)):
        policy = case.improved(name, np.array([1.0, 1.0]), epsilon)
        rows.append(case.row("1,1", name, "" if np.isinf(epsilon) else f"{epsilon:g}", policy))
    return rows


def _without_rare(counts: Counts, below: int) -> Counts:
    """The counts without pairs of fewer than ``below`` visits."""
    keep = counts.pair_count >= below
    lengths = np.diff(counts.outcome_ptr)
    outcomes = np.repeat(keep, lengths)
    return replace(
        counts,
        pair_state=counts.pair_state[keep],
        pair_action=counts.pair_action[keep],
        pair_count=counts.pair_count[keep],
        outcome_ptr=np.concatenate([[0], np.cumsum(lengths[keep])]),
        outcome_state=counts.outcome_state[outcomes],
        outcome_count=counts.outcome_count[outcomes],
        terminated_count=counts.terminated_count[keep],
        reward_sum=counts.reward_sum[:, keep],
        reward_square_sum=counts.reward_square_sum[:, keep],
    )


@dataclass(frozen=True, kw_only=True)
class _Case:
    """One split, with the inputs of the methods and of the evaluation.

    Attributes:
        counts: Counts of the training part, with the rare-treatment objective.
        visits: n(x,a) of the training part, shape [X, A].
        model: The model from which policies are computed.
        control: The model used by dr and wdr.
        baseline: π_b, known or estimated from the training part, shape [X, A].
        behaviour: Denominator of the importance weights, shape [X, A].
        outcomes: Outcomes of the training part, for B-OPT.
        train: The training part, with both objectives.
        valid: The valid part, with both objectives.
        test: The test part, with both objectives.
        truth: The true MDP, if there is one.
        published: Whether to follow the published code.
        clip: Limits to which published estimates are clipped, or None.
        unseen: Value of unseen pairs.
    """

    counts: Counts
    visits: Ints
    model: Model
    control: Model
    baseline: Floats
    behaviour: Floats
    outcomes: Outcomes
    train: Dataset
    valid: Dataset
    test: Dataset
    truth: MDP | None
    published: bool
    clip: tuple[Floats, Floats] | None
    unseen: str

    @classmethod
    def make(
        cls,
        train: Dataset,
        valid: Dataset,
        test: Dataset,
        settings: Settings,
        known_baseline: Floats | None,
        truth: Callable[[Floats], MDP] | None,
        *,
        below: int,
    ) -> _Case:
        counts = with_rare(count(train), below=below, reward=RARE_REWARD)
        visits = _visits(train)
        objective = counts.objectives[-1]
        train, valid, test = (
            with_rare_rows(part, visits, objective, below=below, reward=RARE_REWARD) for part in (train, valid, test)
        )
        rare = np.where(visits < below, RARE_REWARD, 0.0)
        published = settings["preset"] == "published"
        baseline = estimate_baseline(counts) if known_baseline is None else known_baseline
        behaviour, clip = baseline, None
        if published:
            longest = float(np.diff(test.episode_ptr).max())
            clip = (np.array([-100.0, RARE_REWARD * longest]), np.array([100.0, 0.0]))
            valid, test = (_supported(part, visits) for part in (valid, test))
        elif known_baseline is None:
            everything = visits + _visits(valid) + _visits(test)
            total = everything.sum(axis=1, keepdims=True)
            behaviour = np.where(total > 0, everything / np.maximum(total, 1), 1.0 / visits.shape[1])
            # In states without training data the estimated row is arbitrary, so the clinicians' row is used.
            baseline = np.where(visits.sum(axis=1, keepdims=True) > 0, baseline, behaviour)
        model = _estimate(counts, settings["unseen"], baseline)
        return cls(
            counts=counts,
            visits=visits,
            model=model,
            control=model if published else _estimate(counts, "baseline", behaviour),
            baseline=baseline,
            behaviour=behaviour,
            outcomes=gather_outcomes(train, known_rewards={1: rare}),
            train=train,
            valid=valid,
            test=test,
            truth=None if truth is None else truth(rare),
            published=published,
            clip=clip,
            unseen=settings["unseen"],
        )

    def estimate(self, counts: Counts) -> Model:
        """Model of other counts with the same settings."""
        return _estimate(counts, self.unseen, self.baseline)

    def policies(self, preference: Floats, *, without: str | None) -> list[tuple[str, str, Floats]]:
        """(method, parameter, policy) of every method except ``without``, for ``preference``."""
        bold = self.improved("adv-linearized", preference)
        trials = self._trials(preference, bold)
        found = []
        for name, parameters in POLICIES.items():
            facts = METHODS[name]
            for parameter in parameters if name != without else ():
                if facts.posterior:
                    policy = self.by_posterior(preference, float(parameter))
                elif facts.episodes:
                    policy = self.tested(trials, parameter, preference)
                else:
                    epsilon = float(parameter) if facts.budget else np.inf
                    policy = bold if name == "adv-linearized" else self.improved(name, preference, epsilon)
                found.append((name, parameter, policy))
        return found

    def improved(self, name: str, preference: Floats, epsilon: float = np.inf) -> Floats:
        """Policy of a method that uses only the training part."""
        facts = METHODS[name]
        return facts.make(
            self.model,
            self.baseline,
            preference=preference,
            epsilon=epsilon,
            max_rounds=MAX_ROUNDS if facts.per_state else None,
        ).policy

    def by_posterior(self, preference: Floats, delta: float) -> Floats:
        """B-OPT's policy, from the training part."""
        if not np.any(preference):
            return self.baseline
        return b_opt(
            self.outcomes, self.model, self.baseline, preference=preference, question=Question(delta=delta)
        ).improvement.policy

    def tested(self, trials: Mapping[bool, Trial], parameter: str, preference: Floats) -> Floats:
        """H-OPT's policy for an estimator, δ and a rule, by default the preset's."""
        estimator, delta, *others = parameter.split()
        rule = RULES[others[0] if others else self.rule]
        test = SafetyRule(
            delta=float(delta), zeta=np.zeros(2), estimator=estimator, comparison=rule.comparison, strict=rule.strict
        )
        return trials[rule.strict].choose(test, rule.selection, preference)

    @property
    def rule(self) -> str:
        """H-OPT's rule of the preset, a key of `RULES`."""
        return "published" if self.published else "sequential"

    def _trials(self, preference: Floats, bold: Floats) -> dict[bool, Trial]:
        """H-OPT's candidates, evaluated on the valid part: without the coverage rule and, if the preset has it, with it.

        Without it, states in which the proposal ``bold`` plays an action that clinicians never play get the baseline's row, since
        importance weights would be undefined. With it, the proposal and the coverage are those of `h_opt`.
        """
        played = self.behaviour > 0.0
        trials = {False: self._trial(inside(bold, self.baseline, played), covered=False)}
        if RULES[self.rule].strict:
            proposal = adv_linearized(self.model, self.baseline, preference=preference, max_rounds=MAX_ROUNDS)
            supported = inside(with_support(proposal, self.model).policy, self.baseline, played)
            trials[True] = self._trial(supported, covered=True)
        return trials

    def _trial(self, proposal: Floats, *, covered: bool) -> Trial:
        rule = SafetyRule(delta=1.0, zeta=np.zeros(2))
        return try_candidates(
            proposal,
            self.baseline,
            lambda policy: self._evaluate(self.valid, policy),
            estimators=OPE,
            fixed={
                "published": expected_return(self.model.mdp, self.baseline),
                "empirical": logged_return(self.valid),
            },
            train=lambda policy: self._evaluate(self.train, policy),
            covered=(lambda policy: coverage(policy, self.behaviour, self.valid, rule, model=self.model))
            if covered
            else None,
        )

    def _evaluate(self, data: Dataset, policy: Floats) -> dict[str, Evaluation]:
        return evaluate_many(
            data, policy, self.behaviour, estimators=(*OPE, "model"), model=self.control, clip=self.clip
        )

    def row(self, preference: str, method: str, parameter: str, policy: Floats) -> Row:
        """Results of one policy; rare treatments are a cost."""
        test, valid = self._evaluate(self.test, policy), self._evaluate(self.valid, policy)
        inside = expected_return(self.model.mdp, policy)
        row: Row = {"preference": preference, "method": method, "parameter": parameter}
        for prefix, values in (
            *((estimator, test[estimator].value) for estimator in OPE),
            *((f"valid_{estimator}", valid[estimator].value) for estimator in OPE),
            *((f"{estimator}_se", test[estimator].standard_error) for estimator in OPE),
            ("model", inside),
            ("true", np.full(2, np.nan) if self.truth is None else expected_return(self.truth, policy)),
        ):
            row[f"{prefix}_survival"] = float(values[0])
            row[f"{prefix}_rare"] = float(values[1] if prefix.endswith("_se") else 0.0 - values[1])
        row |= {"ess": test["dr"].ess, "test_episodes": test["dr"].n_episodes, "usable": not test["dr"].doubts}
        return row | self._treatments(policy)

    def _treatments(self, policy: Floats) -> Row:
        """Treatments of the policy: vasopressors where clinicians give none, frequency of its actions in the data, doses."""
        seen = self.visits.sum(axis=1) > 0
        states = np.flatnonzero(seen)
        vaso = np.array([int(str(label)[-1]) for label in self.counts.action_labels])
        usual = vaso[np.argmax(self.visits[states], axis=1)]
        advised = np.argmax(policy[states], axis=1)
        none = usual == 0
        times = self.visits[states, advised]
        share = times / self.visits[states].sum(axis=1)
        weight = self.visits.sum(axis=1) / self.visits.sum()
        doses = weight @ policy
        return {
            "states": int(states.size),
            "states_without_vaso": int(none.sum()),
            "given_vaso": int(np.count_nonzero(vaso[advised[none]] > 0)),
            "given_large_vaso": int(np.count_nonzero(vaso[advised[none]] >= LARGE_DOSE)),
            "advised_times_seen": float(times.mean()),
            "advised_share_seen": float(share.mean()),
            **{f"dose {label!s}": float(dose) for label, dose in zip(self.counts.action_labels, doses, strict=True)},
        }


def _visits(data: Dataset) -> Ints:
    """n(x,a) of a log, shape [X, A]."""
    flat = np.bincount(data.states * data.n_actions + data.actions, minlength=data.n_states * data.n_actions)
    return np.asarray(flat.reshape(data.n_states, data.n_actions), dtype=np.int64)


def _supported(data: Dataset, visits: Ints) -> Dataset:
    """Episodes whose pairs all occur in the training part; the published code drops the others."""
    unseen = np.add.reduceat(visits[data.states, data.actions] == 0, data.episode_ptr[:-1])
    return take_episodes(data, np.flatnonzero(unseen == 0))


def _estimate(counts: Counts, unseen: str, baseline: Floats) -> Model:
    """Model with δ = 1 and all states in the error function, as published; with "death", unseen pairs end with −100. With "baseline",
    unseen pairs are worth the baseline in rare treatments too.
    """
    rare = counts.unseen_reward[1]
    if unseen == "death":
        counts = replace(counts, unseen_reward=np.array([RETURN_OF_DEATH, rare]))
        unseen = "end"
    model = estimate_model(
        counts,
        delta=1.0,
        error_objectives=1,
        unseen=unseen,  # type: ignore[arg-type]
        baseline=baseline,
        vocabulary="declared",
    )
    if unseen == "baseline":
        acted = np.diff(model.mdp.state_ptr) > 0
        value = model.mdp.unseen_value - np.array([[0.0], [rare]]) * acted
        model = replace(model, mdp=replace(model.mdp, unseen_value=value))
    return model
