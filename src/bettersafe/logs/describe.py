"""Description of a log: size, coverage, returns and likely problems."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bettersafe.errors import check_type
from bettersafe.logs.counts import Counts
from bettersafe.logs.labels import label_problems
from bettersafe.mdp.policy import check_policy, sum_tolerance

if TYPE_CHECKING:
    import numpy.typing as npt

    from bettersafe.typing import Json


PERCENTS = (0, 10, 25, 50, 75, 90, 100)
FEW = 10  # with fewer visits, the error e(x, a) of a pair exceeds 0.4 for any vocabulary
FEW_EPISODES = 30  # below this, bounds on a mean return are wider than most improvements
MANY = 0.5  # share from which a problem is reported


@dataclass(frozen=True, kw_only=True)
class ObjectiveDescription:
    """Rewards and returns of one objective, in the user's own sign."""

    name: str
    title: str
    unit: str
    discount: float
    lower_is_better: bool
    reward_min: float
    reward_max: float
    return_mean: float
    return_sd: float
    return_min: float
    return_max: float


@dataclass(frozen=True, kw_only=True)
class Description:
    """Size, coverage, returns and likely problems of a log.

    Attributes:
        rows: Number of logged transitions.
        episodes: Number of episodes.
        truncated: Episodes that did not terminate.
        length_min: Rows of the shortest episode.
        length_mean: Mean number of rows per episode.
        length_max: Rows of the longest episode.
        states: |X|.
        actions: |A|.
        pairs: Pairs that were tried.
        pairs_possible: |X| |A|.
        count_quantiles: (percent, quantile of n(x, a) over the tried pairs).
        few: Pairs tried fewer than 10 times.
        few_share_of_pairs: Share of these pairs among the tried pairs.
        few_share_of_rows: Share of their rows among all rows.
        states_never_left: States that were reached, but have no logged action.
        objectives: Description of every objective.
        baseline_coverage: Share of the baseline's probability, weighted by visits, on tried pairs; None without a baseline.
        problems: Sentences for people; notes of the reader first.
    """

    rows: int
    episodes: int
    truncated: int
    length_min: int
    length_mean: float
    length_max: int
    states: int
    actions: int
    pairs: int
    pairs_possible: int
    count_quantiles: tuple[tuple[int, float], ...]
    few: int
    few_share_of_pairs: float
    few_share_of_rows: float
    states_never_left: int
    objectives: tuple[ObjectiveDescription, ...]
    baseline_coverage: float | None
    problems: tuple[str, ...]

    def to_json(self) -> Json:
        """Plain dict for JSON; NaN and infinities become None."""

        def plain(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: plain(item) for key, item in value.items()}
            if isinstance(value, list | tuple):
                return [plain(item) for item in value]
            return None if isinstance(value, float) and not math.isfinite(value) else value

        content: Json = plain(asdict(self))
        content["count_quantiles"] = {str(percent): value for percent, value in self.count_quantiles}
        return content


def describe(counts: Counts, *, baseline: npt.ArrayLike | None = None) -> Description:
    """Describe a log from its counts.

    Args:
        counts: Statistics of the log.
        baseline: π_b, shape [X, A], or None if not known.

    Examples:
        >>> told = bettersafe.describe(counts)
        >>> told.episodes, told.pairs, told.few  # all 18 pairs were tried, none of them fewer than 10 times
        (1000, 18, 0)
    """
    check_type("counts", counts, Counts)
    rare = counts.pair_count < FEW
    counted = int(counts.pair_count.sum())
    quantiles = np.percentile(counts.pair_count, PERCENTS) if counts.n_pairs else np.zeros(len(PERCENTS))
    per_state = np.bincount(counts.pair_state, minlength=counts.n_states)
    coverage = None
    if baseline is not None:
        policy = check_policy(
            baseline, counts.n_states, counts.n_actions, name="baseline", state_labels=counts.state_labels
        )
        visits = np.bincount(counts.pair_state, weights=counts.pair_count, minlength=counts.n_states)
        seen = visits[counts.pair_state] * policy[counts.pair_state, counts.pair_action]
        coverage = float(seen.sum() / counted) if counted else 0.0
    objectives = tuple(_objective(counts, k) for k in range(counts.n_objectives))
    return Description(
        rows=counts.n_rows,
        episodes=counts.n_episodes,
        truncated=counts.n_truncated,
        length_min=counts.length_min,
        length_mean=counts.n_rows / counts.n_episodes,
        length_max=counts.length_max,
        states=counts.n_states,
        actions=counts.n_actions,
        pairs=counts.n_pairs,
        pairs_possible=counts.n_states * counts.n_actions,
        count_quantiles=tuple(zip(PERCENTS, quantiles.tolist(), strict=True)),
        few=int(rare.sum()),
        few_share_of_pairs=float(rare.mean()) if counts.n_pairs else 0.0,
        few_share_of_rows=float(counts.pair_count[rare].sum() / counted) if counted else 0.0,
        states_never_left=int(np.sum(per_state == 0)),
        objectives=objectives,
        baseline_coverage=coverage,
        problems=(*counts.notes, *_problems(counts, objectives, coverage)),
    )


def _objective(counts: Counts, k: int) -> ObjectiveDescription:
    objective, n = counts.objectives[k], counts.n_episodes
    total, square = float(counts.return_sum[k]), float(counts.return_square_sum[k])
    variance = max(square - total**2 / n, 0.0) / (n - 1) if n > 1 else math.nan  # rounding may go below 0
    low_reward, high_reward = float(counts.reward_min[k]), float(counts.reward_max[k])
    low, high, mean = float(counts.return_min[k]), float(counts.return_max[k]), total / n
    if objective.lower_is_better:
        low_reward, high_reward = 0.0 - high_reward, 0.0 - low_reward
        low, high, mean = 0.0 - high, 0.0 - low, 0.0 - mean
    return ObjectiveDescription(
        name=objective.name,
        title=objective.title,
        unit=objective.unit,
        discount=objective.discount,
        lower_is_better=objective.lower_is_better,
        reward_min=low_reward,
        reward_max=high_reward,
        return_mean=mean,
        return_sd=math.sqrt(variance) if math.isfinite(total) else math.nan,
        return_min=low,
        return_max=high,
    )


def _problems(counts: Counts, objectives: tuple[ObjectiveDescription, ...], coverage: float | None) -> list[str]:
    """Sentences on what limits an improvement from this log."""
    found = []
    if counts.n_episodes < FEW_EPISODES:
        found.append(f"there are only {counts.n_episodes} episodes: bounds from them will be wide")
    for one in objectives:
        if one.reward_min == one.reward_max:
            found.append(f"{one.title} is {one.reward_min:g} in every row: no policy can change it")
        if math.isnan(one.return_mean):
            found.append(f"{one.title} is derived from the counts: its logged returns are not known")
    rare = int(np.sum(counts.pair_count < FEW))
    if counts.n_pairs and rare > MANY * counts.n_pairs:
        found.append(
            f"{rare} of {counts.n_pairs} tried pairs ({_percent(rare, counts.n_pairs)}) were tried fewer than"
            f" {FEW} times: little can be learned about them"
        )
    per_state = np.bincount(counts.pair_state, minlength=counts.n_states)
    acted, single = int(np.sum(per_state > 0)), int(np.sum(per_state == 1))
    if counts.n_actions == 1:
        found.append("there is only one action: there is nothing to choose")
    elif acted and single >= MANY * acted:
        found.append(
            f"in {single} of {acted} states ({_percent(single, acted)}) only one action was ever tried:"
            " nothing can be improved there"
        )
    never = counts.n_states - acted
    if never:
        found.append(f"{never} of {counts.n_states} states were reached, but no action was logged in them")
    if counts.n_truncated == counts.n_episodes:
        found.append("no episode terminated: all were cut off, and what followed is estimated")
    if coverage is not None and coverage < 1.0 - 1e-9:
        found.append(f"{1.0 - coverage:.2%} of the baseline's decisions were never tried in the log")
    found += _baseline_problems(counts)
    found += label_problems(counts)
    return found


def _baseline_problems(counts: Counts) -> list[str]:
    if counts.baseline_prob is None:
        return []
    total = np.bincount(counts.pair_state, weights=counts.baseline_prob, minlength=counts.n_states)
    over = np.flatnonzero(total > 1.0 + sum_tolerance(counts.n_actions))
    if not over.size:
        return []
    x = int(over[0])
    more = f" (and {over.size - 1} more states like it)" if over.size > 1 else ""
    return [f"the logged probabilities of state {counts.state_labels[x]!s} sum to {total[x]:.4g}, more than 1{more}"]


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.0%}"
