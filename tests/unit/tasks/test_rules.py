"""Rules of a task's tests."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.errors import ParameterError
from bettersafe.logs.dataset import Objective
from bettersafe.tasks.rules import by_objective, posterior_question, safety_rule, task_thresholds
from bettersafe.tasks.task import Task

GAIN = Objective(name="gain", discount=0.5, reward_range=(0.0, 1.0))
PAIN = Objective(name="pain", discount=0.5, reward_range=(0.0, 2.0), lower_is_better=True, weight=0.0)


def test_values_are_given_by_objective() -> None:
    assert by_objective({"pain": 2.0}, (GAIN, PAIN), "zeta", otherwise=0.5).tolist() == [0.5, 2.0]
    with pytest.raises(ParameterError, match=r"zeta of pian: there is no such objective.*Did you mean 'pain'") as error:
        by_objective({"pian": 1.0}, (GAIN, PAIN), "zeta", otherwise=0.0)
    assert error.value.setting == "zeta"


def test_thresholds_of_costs_change_their_sign() -> None:
    assert task_thresholds({}, (GAIN, PAIN)) is None
    thresholds = task_thresholds({"pain": 3.0}, (GAIN, PAIN))
    assert thresholds is not None
    np.testing.assert_array_equal(thresholds, [np.nan, -3.0])
    with pytest.raises(ParameterError, match="finite"):
        task_thresholds({"pain": np.inf}, (GAIN, PAIN))


def test_the_rule_of_a_test_has_the_ranges_of_the_objectives() -> None:
    rule = safety_rule(Task(data="log.csv", objectives=(GAIN, PAIN), delta=0.05, zeta={"pain": 1.0}), (GAIN, PAIN))
    assert rule.delta == 0.05
    assert np.asarray(rule.zeta).tolist() == [0.0, 1.0]
    assert rule.return_range is not None
    # Σ_t 0.5^t · 1 = 2 for the gain; the pain is a reward from −2 to 0, so its return is from −4 to 0.
    assert [np.asarray(edge).tolist() for edge in rule.return_range] == [[0.0, -4.0], [2.0, 0.0]]


def test_the_question_has_the_settings_of_the_task() -> None:
    task = Task(data="log.csv", objectives=(GAIN, PAIN), delta=0.2, draws=50, seed=3, prior="support", pessimism=2.0)
    question = posterior_question(task, (GAIN, PAIN))
    assert (question.delta, question.draws, question.seed) == (0.2, 50, 3)
    assert (question.priors.neutral, question.priors.pessimism) == ("support", 2.0)
