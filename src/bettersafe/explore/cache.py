"""Cache of a session's latest solutions, which answers, posterior evaluations and changes of ζ share."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from bettersafe.explore.answers import answer, believe
from bettersafe.explore.keeping import keep
from bettersafe.explore.session import solve, spread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bettersafe.explore.session import Session, Settings
    from bettersafe.methods.result import Improvement
    from bettersafe.posterior.candidates import Spread
    from bettersafe.typing import Json

T = TypeVar("T")

REMEMBERED = 64
REMEMBERED_BYTES = 64_000_000
"""Largest number and total size in bytes of cached solutions."""


class Cache:
    """LRU cache of a session's solutions; thread-safe: one solve, one posterior evaluation, one save at a time."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.keeping = threading.Lock()
        size = max(int(session.baseline.nbytes), 1)
        most = max(2, min(REMEMBERED, REMEMBERED_BYTES // size))
        self._solved: _Last[Improvement] = _Last(most)
        self._spread: _Last[Spread] = _Last(most)

    def answer(self, settings: Settings, *, search: str = "") -> Json:
        """`answer`, with cached solutions."""
        return answer(self.session, settings, self._solution(settings), search=search)

    def believe(self, settings: Settings) -> Json:
        """`believe`, with cached solutions and posteriors."""
        found = self._solution(settings)
        if not found.changed.size:
            return believe(self.session, settings, found, None)
        linearised = self._spread.get(settings.policy_key, lambda: spread(self.session, found.policy))
        return believe(self.session, settings, found, linearised)

    def keep(self, settings: Settings, name: str, folder: Path) -> Json:
        """`keep`, one at a time."""
        with self.keeping:
            return keep(self.session, settings, name, folder)

    def _solution(self, settings: Settings) -> Improvement:
        return self._solved.get(settings.policy_key, lambda: solve(self.session, settings))


class _Last(Generic[T]):
    """LRU cache that computes one value at a time."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._made: OrderedDict[Any, T] = OrderedDict()

    def get(self, key: Any, make: Callable[[], T]) -> T:
        with self._lock:
            if key not in self._made:
                self._made[key] = make()
                while len(self._made) > self.most:
                    self._made.popitem(last=False)
            self._made.move_to_end(key)
            return self._made[key]
