"""Tables of made-up patients, prepared."""

from __future__ import annotations

import pytest

import synthetic_mimic
from bettersafe.errors import DataError
from bettersafe.studies.sepsis.mimic import Preparation, prepare_mimic

SMALL = {"k": 6, "quick": True}


def tables(stays=40, seed=0):
    listed, blocks = synthetic_mimic.cohort(stays, seed)
    return {k: v.copy() for k, v in listed.items()}, {k: v.copy() for k, v in blocks.items()}


def prepare(folder, listed, blocks, *, force=False, **settings):
    folder.mkdir(parents=True, exist_ok=True)
    files = synthetic_mimic.write(folder, listed, blocks)
    return prepare_mimic(*files, folder / "out", Preparation(**(SMALL | settings)), force=force)


# ---- what is refused
def refused(tmp_path, match, *, table=None, listed=None, error=DataError, **settings):
    own_listed, blocks = tables(20)
    with pytest.raises(error, match=match):
        prepare(tmp_path, own_listed | (listed or {}), blocks if table is None else table(blocks), **settings)
    assert not (tmp_path / "out").exists()
