from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from bettersafe.errors import PolicyError
from bettersafe.logs.counts import Counts, with_rare
from bettersafe.logs.dataset import Objective
from bettersafe.logs.describe import describe
from bettersafe.logs.source import count_files
from logs import GAIN, PAIN, Rows, small_log, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def counts(tmp_path: Path) -> Counts:
    return count_files(write(tmp_path / "log.csv", small_log()), objectives=[GAIN, PAIN])


def test_small_log_by_hand(counts: Counts) -> None:
    found = describe(counts)
    assert (found.rows, found.episodes, found.truncated) == (3, 2, 1)
    assert (found.length_min, found.length_mean, found.length_max) == (1, 1.5, 2)
    assert (found.states, found.actions, found.pairs, found.pairs_possible) == (2, 2, 2, 4)
    assert found.count_quantiles == (
        (0, 1.0),
        (10, 1.1),
        (25, 1.25),
        (50, 1.5),
        (75, 1.75),
        (90, 1.9),
        (100, 2.0),
    )
    assert (found.few, found.few_share_of_pairs, found.few_share_of_rows) == (2, 1.0, 1.0)
    assert found.states_never_left == 0
    assert found.baseline_coverage is None
    gain, pain = found.objectives
    # Returns 3 and -2: mean 0.5, sd 5/√2.
    assert (gain.return_mean, gain.return_min, gain.return_max) == (0.5, -2.0, 3.0)
    assert gain.return_sd == pytest.approx(5 / math.sqrt(2))
    # A cost is shown as a cost: 0.5 and 2.
    assert (pain.reward_min, pain.reward_max) == (0.0, 2.0)
    assert (pain.return_mean, pain.return_min, pain.return_max) == (1.25, 0.5, 2.0)
    assert found.problems == (
        "there are only 2 episodes: bounds from them will be wide",
        "2 of 2 tried pairs (100%) were tried fewer than 10 times: little can be learned about them",
        "in 2 of 2 states (100%) only one action was ever tried: nothing can be improved there",
    )


def test_json_is_plain(counts: Counts) -> None:
    content = describe(with_rare(counts)).to_json()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert content["count_quantiles"]["50"] == 1.5
    assert content["objectives"][2]["return_mean"] is None
    assert "rare is derived from the counts: its logged returns are not known" in content["problems"]


def test_coverage_of_the_baseline(counts: Counts) -> None:
    # a (2 visits): 0.5 on the action tried; b (1 visit): 1.
    found = describe(counts, baseline=[[0.5, 0.5], [0.0, 1.0]])
    assert found.baseline_coverage == pytest.approx((2 * 0.5 + 1) / 3)
    assert "33.33% of the baseline's decisions were never tried in the log" in found.problems
    assert describe(counts, baseline=[[1.0, 0.0], [0.0, 1.0]]).baseline_coverage == 1.0
    with pytest.raises(PolicyError, match=r"state b sum to 0\.5"):
        describe(counts, baseline=[[1.0, 0.0], [0.0, 0.5]])


def test_problems_of_a_poor_log(tmp_path: Path) -> None:
    rows: Rows = [
        {
            "episode": 1,
            "step": 0,
            "state": "a",
            "action": 1,
            "next_state": "z",
            "terminated": False,
            "gain": 3.0,
        }
    ]
    found = describe(count_files(write(tmp_path / "log.csv", rows), objectives=[replace(GAIN, label="Gain")]))
    assert "Gain is 3 in every row: no policy can change it" in found.problems
    assert "there is only one action: there is nothing to choose" in found.problems
    assert "1 of 2 states were reached, but no action was logged in them" in found.problems
    assert "no episode terminated: all were cut off, and what followed is estimated" in found.problems
    assert found.states_never_left == 1
    assert math.isnan(found.objectives[0].return_sd)


def test_notes_come_first_and_impossible_probabilities_are_told(tmp_path: Path) -> None:
    rows: Rows = [
        {"episode": i, "step": 0, "state": "a", "action": i % 2, "gain": float(i), "baseline_prob": 0.75}
        for i in range(40)
    ]
    found = describe(count_files(write(tmp_path / "log.csv", rows), objectives=[Objective(name="gain")]))
    assert found.problems == (
        "no 'terminated' column: the last row of every episode is taken as its end",
        "column 'baseline_prob' gives the baseline's probability of each logged action",
        "the logged probabilities of state a sum to 1.5, more than 1",
    )


def test_log_of_which_no_pair_is_known(counts: Counts) -> None:
    empty = np.zeros(0, dtype=np.int64)
    none = replace(
        counts,
        **dict.fromkeys(("pair_state", "pair_action", "pair_count", "terminated_count"), empty),
        **dict.fromkeys(("outcome_state", "outcome_count"), empty),
        **dict.fromkeys(("reward_sum", "reward_square_sum"), np.zeros((2, 0))),
        outcome_ptr=[0],
    )
    found = describe(none, baseline=np.full((2, 2), 0.5))
    assert (found.pairs, found.few_share_of_pairs, found.few_share_of_rows, found.baseline_coverage) == (
        0,
        0,
        0,
        0,
    )
