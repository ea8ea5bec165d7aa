"""Roles of the columns of a log: the fields of `Columns`, and the kind of their cells."""

from __future__ import annotations

from dataclasses import fields

from bettersafe.logs.dataset import Columns

REQUIRED = tuple(field.name for field in fields(Columns) if field.default is not None)
UNIT = "sampling_unit"
"""Role of a column that only tests and splits use, and only if it is named."""

OPTIONAL = tuple(field.name for field in fields(Columns) if field.default is None and field.name != UNIT)
ROLES = (*REQUIRED, *OPTIONAL)

VOCABULARY = {"episode": "episode", "state": "state", "next_state": "state", "action": "action"}
"""Role of a column of labels -> its vocabulary, which is the role of the first column that uses it."""

FLAGS = ("terminated", "truncated")
"""Roles of columns of true or false."""
