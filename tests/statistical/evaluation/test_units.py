"""Does a bound by sampling unit fail as seldom as it says, where the episodes of a unit are alike? By episode it does not."""

from __future__ import annotations

import numpy as np
from scipy import stats

from bettersafe.evaluation.bounds import by_unit, lower_bound

DELTA = 0.1
SAMPLES = 1000


def failures(*, units_known):
    """How often the bound on a mean of 0 is too high: 40 patients with 5 to 15 episodes each, who differ as much as episodes do."""
    wrong = 0
    for seed in range(SAMPLES):
        rng = np.random.default_rng([5, seed])
        units = np.repeat(np.arange(40), rng.integers(5, 16, size=40))
        terms = rng.normal(size=40)[units] + rng.normal(size=units.size)
        terms = by_unit(terms[:, None], units if units_known else None)
        wrong += int(lower_bound(terms, DELTA, method="t")[0] > 0.0)
    return wrong


def test_bounds_by_unit_hold_and_by_episode_do_not():
    allowed = int(stats.binom.ppf(1.0 - 1e-6, SAMPLES, DELTA + 0.01))  # linearised
    by_units, by_episodes = failures(units_known=True), failures(units_known=False)
    assert by_units <= allowed
    assert by_episodes > 0.25 * SAMPLES > allowed
