"""Dataclasses to JSON and back: everything returns as it was, and a wrong type is named."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest

from bettersafe._system.records import from_json, to_json
from bettersafe.errors import RunError


@dataclass(frozen=True, kw_only=True)
class Part:
    share: float
    name: str = "whole"


@dataclass(frozen=True, kw_only=True)
class Whole:
    number: int
    flag: bool
    kind: Literal["a", "b"]
    bound: float | None
    pair: tuple[int, str]
    parts: tuple[Part, ...] = ()
    by_name: dict[str, float] = field(default_factory=dict)
    anything: Any = None


WHOLE = Whole(
    number=3, flag=True, kind="b", bound=-math.inf, pair=(1, "one"), parts=(Part(share=0.5), Part(share=math.inf, name="ü")),
    by_name={"x": 1.0}, anything=[1, {"y": None}],
)  # fmt: skip


def test_there_and_back():
    text = json.dumps(to_json(WHOLE), allow_nan=False)
    assert from_json(Whole, json.loads(text), "", "run.json") == WHOLE
    nothing = replace(WHOLE, bound=None, parts=(), by_name={})
    assert from_json(Whole, to_json(nothing), "", "run.json") == nothing
    assert math.isnan(from_json(float, to_json(math.nan), "x", "run.json"))


def test_defaults_may_be_missing_and_unknown_fields_are_ignored():
    document = to_json(WHOLE)
    del document["parts"], document["by_name"], document["anything"]
    found = from_json(Whole, {**document, "newer": 1}, "", "run.json")
    assert found == replace(WHOLE, parts=(), by_name={}, anything=None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"number": 3.5}, "number must be a whole number; got 3.5"),
        ({"number": True}, "number must be a whole number; got True"),
        ({"flag": 1}, "flag must be true or false; got 1"),
        ({"kind": "c"}, "kind must be one of a, b; got 'c'"),
        ({"bound": "much"}, "bound must be a number; got 'much'"),
        ({"pair": [1]}, r"pair must be a list of 2; got \[1\]"),
        ({"parts": {}}, "parts must be a list; got {}"),
        ({"parts": [{"share": 1.0}, {"share": None}]}, r"parts\[1\]\.share must be a number; got None"),
        ({"parts": [{"share": 1.0, "name": 7}]}, r"parts\[0\]\.name must be text; got 7"),
        ({"by_name": {"x": "1"}}, r"by_name\.x must be a number; got '1'"),
        ({"by_name": "x" * 99}, "by_name must be an object; got 'x{56}…"),
    ],
)
def test_what_is_wrong_is_named(change, said):
    with pytest.raises(RunError, match=f"^run.json is not as it was saved: {said}"):
        from_json(Whole, {**to_json(WHOLE), **change}, "", "run.json")


def test_what_is_missing_is_named():
    document = to_json(WHOLE)
    del document["parts"][1]["share"]
    with pytest.raises(RunError, match=r"^run.json is not complete: it lacks parts\[1\]\.share\.$"):
        from_json(Whole, document, "", "run.json")
    with pytest.raises(RunError, match="the document must be an object"):
        from_json(Whole, [], "", "run.json")
