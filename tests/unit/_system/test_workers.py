"""Work on processes of this machine: every item once, whatever dies on the way. Sweeps and shards test the same on Ray."""

from __future__ import annotations

import math
import os

import pytest

import toys
from bettersafe._system.workers import Lost, cores, here, in_pool


def test_every_item_is_done_once_here_and_in_a_pool():
    items = [4.0, 9.0, 16.0, 25.0, 36.0]
    expected = {index: math.sqrt(item) for index, item in enumerate(items)}
    assert list(here(math.sqrt, items)) == list(expected.items())
    done = list(in_pool(math.sqrt, items, workers=2))
    assert sorted(done) == list(expected.items())
    assert list(in_pool(math.sqrt, [], workers=2)) == []


def test_an_item_that_kills_its_worker_is_lost_alone():
    items = [{"how": "fine", "seed": 0}, {"how": "die", "seed": 1}, {"how": "fine", "seed": 2}]
    done = dict(in_pool(toys.fragile, items, workers=2))
    assert done[0] == [{"fine": 0}]
    assert done[2] == [{"fine": 2}]
    assert done[1] == Lost("its worker process died 3 times (killed, crashed or out of memory)")


def test_an_item_whose_worker_dies_once_is_done(tmp_path):
    """Without one that always dies beside it: that could take its worker with it twice, before the item itself was ever tried."""
    items = [{"how": "fine", "seed": 0}, {"how": "die once", "seed": 1, "marker": str(tmp_path / "marker")}]
    assert dict(in_pool(toys.fragile, items, workers=2)) == {0: [{"fine": 0}], 1: [{"fine": 1}]}


@pytest.mark.parametrize("run", [here, lambda task, items: in_pool(task, items, workers=2)])
def test_an_error_of_the_task_is_raised(run):
    with pytest.raises(ValueError, match="math domain error"):
        list(run(math.sqrt, [1.0, -1.0]))


def test_cores_are_those_that_this_process_may_use():
    assert 1 <= cores() <= os.cpu_count()
