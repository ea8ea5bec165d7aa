"""Requests of the explorer's page: settings and names parsed from JSON, with errors that name the field."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from bettersafe.errors import ParameterError, did_you_mean
from bettersafe.explore.session import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bettersafe.explore.session import Session
    from bettersafe.typing import Json

LARGEST = 1e9
"""Largest weight, budget or accepted loss; a larger number is a typing error and would overflow."""

RUN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


class SettingError(ParameterError):
    """Invalid field of a request; ``setting`` is the name of the field."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}", setting=field)


def read_settings(document: Any, session: Session) -> Settings:
    """Parse settings from JSON.

    Raises:
        SettingError: If a field is missing, unknown or out of range.
    """
    table = read_fields(document, "settings", ("preference", "epsilon", "delta", "zeta"))
    epsilon = table["epsilon"]
    return Settings(
        preference=_by_name(table["preference"], "preference", session),
        epsilon=math.inf if epsilon == "inf" else _number(epsilon, "epsilon", 0.0, LARGEST, ' or "inf"'),
        delta=_number(table["delta"], "delta", 1e-12, 1.0),
        zeta=_by_name(table["zeta"], "zeta", session),
    )


def read_fields(
    document: Any, where: str, needed: tuple[str, ...], optional: tuple[str, ...] = ()
) -> Mapping[str, Any]:
    """Check that a JSON object has all ``needed`` fields and no others except ``optional`` ones."""
    if not isinstance(document, dict):
        raise SettingError(where, f"must be an object with {', '.join(needed)}; got {_brief(document)}.")
    for name in document:
        if name not in (*needed, *optional):
            known = (*needed, *optional)
            raise SettingError(
                _brief(name, quote=False),
                f"is not a field of {where}; there are {', '.join(known)}.{did_you_mean(name, known)}",
            )
    for name in needed:
        if name not in document:
            raise SettingError(name, f"is missing from {where}.")
    return document


def _by_name(table: Any, field: str, session: Session) -> tuple[float, ...]:
    names = tuple(objective.name for objective in session.objectives)
    values = read_fields(table, field, names)
    return tuple(_number(values[name], f"{field}.{name}", 0.0, LARGEST) for name in names)


def _number(value: Any, field: str, low: float, high: float, more: str = "") -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise SettingError(field, f"must be a number from {low:g} to {high:g}{more}; got {_brief(value)}.")
    return float(value)


def read_search(value: Any) -> str:
    """Check a search text for the names of states and actions."""
    if not isinstance(value, str) or len(value) > 100:
        raise SettingError("search", f"must be text of at most 100 characters; got {_brief(value)}.")
    return value


def read_name(value: Any) -> str:
    """Check the name of a run, which is never a path."""
    if not isinstance(value, str) or RUN_NAME.fullmatch(value) is None:
        raise SettingError(
            "name",
            f"must be 1 to 64 letters, digits, dots, hyphens and underscores, and must not begin with . or -; got {_brief(value)}.",
        )
    return value


def _brief(value: Any, *, quote: bool = True) -> str:
    text = repr(value) if quote else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def settings_json(settings: Settings, session: Session) -> Json:
    """Settings as JSON; the inverse of `read_settings`."""
    names = [objective.name for objective in session.objectives]
    return {
        "preference": dict(zip(names, settings.preference, strict=True)),
        "epsilon": settings.epsilon if math.isfinite(settings.epsilon) else "inf",
        "delta": settings.delta,
        "zeta": dict(zip(names, settings.zeta, strict=True)),
    }
