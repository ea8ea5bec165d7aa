"""Roles of columns: the same in `Columns` and in the settings."""

from __future__ import annotations

from dataclasses import fields

from bettersafe.logs.dataset import Columns
from bettersafe.logs.roles import FLAGS, OPTIONAL, REQUIRED, ROLES, UNIT, VOCABULARY
from bettersafe.tasks.settings import COLUMNS


def test_roles_are_the_columns_of_a_log_and_their_settings() -> None:
    assert [*ROLES, UNIT] == [field.name for field in fields(Columns)] == [row.name for row in COLUMNS]
    assert list(REQUIRED) == [row.name for row in COLUMNS if row.default is not None]
    assert set(REQUIRED) == {"episode", "step", "state", "action"}


def test_kinds_of_cells_belong_to_roles() -> None:
    assert set(VOCABULARY) < set(ROLES)
    assert set(VOCABULARY.values()) <= set(REQUIRED)  # the kind of a vocabulary's labels is known by a required column
    assert set(FLAGS) < set(OPTIONAL)
    assert not set(FLAGS) & set(VOCABULARY)
