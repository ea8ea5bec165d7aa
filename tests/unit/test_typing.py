"""Shared types: arrays that can't be changed, and seeds or generators."""

from __future__ import annotations

import numpy as np
import pytest

from bettersafe.errors import ParameterError
from bettersafe.typing import Event, frozen, generator, ignore


def test_frozen_arrays_are_views_where_they_can_be():
    own = np.arange(6.0).reshape(2, 3)
    view = frozen(own, np.float64)
    assert np.shares_memory(view, own)
    assert not view.flags.writeable
    assert own.flags.writeable
    assert frozen(own.T, np.float64).flags.c_contiguous
    assert frozen([1, 2], np.float64).dtype == np.float64


def test_a_seed_or_a_generator():
    own = np.random.default_rng(3)
    assert generator(own) is own
    assert generator(3).random() == generator(np.int64(3)).random() == np.random.default_rng(3).random()
    for wrong in (-1, "three", None):
        with pytest.raises((ParameterError, TypeError), match="rng"):
            generator(wrong)


def test_an_event_may_say_nothing():
    assert Event() == Event(what="", done=0, total=None, unit="")
    assert ignore(Event()) is None
