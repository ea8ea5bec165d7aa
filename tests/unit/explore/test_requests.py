"""Settings and names that come from the page."""

from __future__ import annotations

import json
import math

import pytest

from bettersafe.explore import requests
from wards import document_of, settings_of


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ([], "settings"),
        ({**document_of(), "colour": 1}, "colour"),
        ({k: v for k, v in document_of().items() if k != "delta"}, "delta"),
        (document_of(epsilon=-0.1), "epsilon"),
        (document_of(epsilon="infinity"), "epsilon"),
        (document_of(epsilon=True), "epsilon"),
        (document_of(epsilon=math.nan), "epsilon"),
        (document_of(epsilon=None), "epsilon"),
        (document_of(delta=0.0), "delta"),
        (document_of(delta=1.1), "delta"),
        (document_of(preference={"relief": 1.0}), "pain"),
        (document_of(preference={"relief": 1.0, "pain": 1.0, "joy": 1.0}), "joy"),
        (document_of(preference={"relief": 1e300, "pain": 1.0}), "preference.relief"),
        (document_of(preference=[1.0, 1.0]), "preference"),
        (document_of(zeta={"relief": 0.0, "pain": -1.0}), "zeta.pain"),
        (document_of(zeta={"relief": 0.0, "pain": "1"}), "zeta.pain"),
    ],
)
def test_settings_that_are_none_are_named(session, document, field):
    with pytest.raises(requests.SettingError) as caught:
        requests.read_settings(document, session)
    assert caught.value.setting == field
    assert field in str(caught.value)


def test_settings_are_read_as_they_are_written(session):
    for settings in (settings_of(), settings_of(epsilon=math.inf, zeta=(0.0, 2.0))):
        written = json.loads(json.dumps(requests.settings_json(settings, session), allow_nan=False))
        assert requests.read_settings(written, session) == settings


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "a\\b", ".hidden", "x" * 65, "naïve", "a b", "a\n", "-rf", 3, None]
)
def test_names_that_are_none(name):
    with pytest.raises(requests.SettingError, match="name must be"):
        requests.read_name(name)


@pytest.mark.parametrize("name", ["kept-1", "a..b", "A_1.2", "_"])
def test_names(name):
    assert requests.read_name(name) == name
