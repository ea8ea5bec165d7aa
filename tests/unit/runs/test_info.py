"""How a run was made: there and back, and what is wrong is named."""

from __future__ import annotations

import json
import math

import pytest

from bettersafe.errors import RunError
from bettersafe.runs.info import info_from_json, info_json
from toy_runs import toy_candidate, toy_run


def test_info_goes_there_and_back():
    candidates = (
        toy_candidate(chosen=True),
        toy_candidate(believed=False, least=(-math.inf, math.nan), passed=False),
        toy_candidate(p_pessimistic=(math.nan, 0.9), passed=False, open=True),
    )
    info = toy_run(candidates=candidates, epsilon=math.inf, notes=("a", "b"), seed=3, settings={"x": [1, None]}).info
    document = json.loads(json.dumps(info_json(info), allow_nan=False))
    assert repr(info_from_json(document, "run.json")) == repr(info)
    assert [candidate.outcome for candidate in info.candidates] == ["chosen", "failed", "open"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"preference": 3}, "preference must be a list; got 3"),
        ({"preference": [1.0, "much"]}, r"preference\[1\] must be a number; got 'much'"),
        ({"rounds": "many"}, "rounds must be a whole number"),
        ({"rounds": True}, "rounds must be a whole number"),
        ({"converged": 1}, "converged must be true or false"),
        ({"gap": None}, "gap must be a number; got None"),
        ({"states_kept": [1]}, r"states_kept\[0\] must be text"),
        ({"notes": "x"}, "notes must be a list"),
        ({"settings": []}, "settings must be an object"),
        ({"versions": {"numpy": 2}}, r"versions\.numpy must be text"),
        ({"data": {"path": "x"}}, r"lacks data\.sha256"),
        ({"data": {"path": "x", "sha256": "0", "rows": 1, "episodes": 1.5}}, r"data\.episodes must be a whole number"),
        ({"candidates": {}}, "candidates must be a list"),
        ({"candidates": [3]}, r"candidates\[0\] must be an object"),
        ({"candidates": [{"name": "a"}]}, r"lacks candidates\[0\]\.evidence"),
        ({"candidates": [{**info_json(toy_run().info), "evidence": "a hunch"}]}, r"lacks candidates\[0\]\.name"),
        ({"method": ...}, "lacks method"),
    ],
)  # fmt: skip
def test_a_wrong_field_of_the_info_is_named(change, message):
    document = {**info_json(toy_run().info), **change}
    document = {key: value for key, value in document.items() if value is not ...}
    with pytest.raises(RunError, match=message):
        info_from_json(document, "run.json")


def test_a_wrong_candidate_is_named():
    row = info_json(toy_run(candidates=(toy_candidate(),)).info)["candidates"][0]
    for change, message in (
        ({"evidence": "a hunch"}, "must be one of safety-test, posterior; got 'a hunch'"),
        ({"least": [0.5, "much"]}, r"candidates\[0\]\.least\[1\] must be a number"),
        ({"gain": [1.0]}, "has gains of 1 objectives; expected 2"),
        ({"draws": 1.5}, r"candidates\[0\]\.draws must be a whole number"),
    ):
        document = {**info_json(toy_run().info), "candidates": [{**row, **change}]}
        with pytest.raises(RunError, match=message):
            info_from_json(document, "run.json")
