"""Frozen dataclasses to JSON and back, with every type checked.

JSON has no infinity and no NaN: these numbers are written as the words "inf", "-inf" and "nan".
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from bettersafe.errors import RunError

WORDS = ("inf", "-inf", "nan")


def to_json(value: Any) -> Any:
    """Convert a dataclass, or a container of dataclasses, to JSON values."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


def from_json(kind: Any, value: Any, name: str, place: str) -> Any:
    """Convert a JSON value to ``kind``: a dataclass, a plain type, or a tuple, mapping, choice or union of them.

    Args:
        kind: Type of the result.
        value: JSON value.
        name: Name of the field, for messages; empty for the whole document.
        place: Name of the file, for messages.

    Raises:
        RunError: A field is missing or has another type; the message names it.
    """
    origin, inside = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _record(kind, value, name, place)
    if origin in (Union, types.UnionType):
        if value is None and types.NoneType in inside:
            return None
        (only,) = (each for each in inside if each is not types.NoneType)
        return from_json(only, value, name, place)
    if origin is Literal:
        if value not in inside:
            raise _wrong(name, f"one of {', '.join(map(str, inside))}", value, place)
        return value
    if origin is tuple:
        if not isinstance(value, list) or (inside[-1] is not Ellipsis and len(value) != len(inside)):
            raise _wrong(name, "a list" if inside[-1] is Ellipsis else f"a list of {len(inside)}", value, place)
        kinds = [inside[0]] * len(value) if inside[-1] is Ellipsis else list(inside)
        return tuple(
            from_json(each, item, f"{name}[{i}]", place)
            for i, (each, item) in enumerate(zip(kinds, value, strict=True))
        )
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise _wrong(name, "an object", value, place)
        return {key: from_json(inside[1], item, f"{name}.{key}", place) for key, item in value.items()}
    return _plain(kind, value, name, place)


def _plain(kind: type, value: Any, name: str, place: str) -> Any:
    """Convert text, an integer, a number or a boolean; a boolean is not accepted as a number."""
    if kind is float:
        if isinstance(value, bool) or not (isinstance(value, int | float) or value in WORDS):
            raise _wrong(name, "a number", value, place)
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _wrong(name, {str: "text", int: "a whole number", bool: "true or false"}[kind], value, place)
    return value


def _record(kind: Any, value: Any, name: str, place: str) -> Any:
    """Convert a dataclass; fields with a default may be missing, and unknown fields are ignored."""
    if not isinstance(value, dict):
        raise _wrong(name or "the document", "an object", value, place)
    hints = get_type_hints(kind)
    found = {}
    for field in dataclasses.fields(kind):
        full = f"{name}.{field.name}" if name else field.name
        if field.name in value:
            found[field.name] = from_json(hints[field.name], value[field.name], full, place)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise RunError(f"{place} is not complete: it lacks {full}.")
    return kind(**found)


def _wrong(name: str, wanted: str, value: Any, place: str) -> RunError:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}…"
    return RunError(f"{place} is not as it was saved: {name} must be {wanted}; got {shown}.")
