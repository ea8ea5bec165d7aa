"""Progress on a terminal: bars, clocks and the time that is left."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from rich.console import Console

from bettersafe.cli.show import progress as show
from bettersafe.typing import Event
from patience import until

if TYPE_CHECKING:
    import pytest


def test_what_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar where it is known how much there is, and none in the step after it."""
    stream = io.StringIO()
    monkeypatch.setattr(show, "Console", lambda **_: Console(file=stream, force_terminal=True, width=100))
    with show.working("Reading") as progress:
        for step in (Event(what="Asking", done=1, total=2, unit="priors"), Event(what="Saving")):
            progress(step)
            until(lambda step=step: re.search(rf"{step.what}.*\d:\d\d:\d\d", stream.getvalue()))  # drawn by a thread
    text = stream.getvalue()
    asking, saving = (re.split(r"\d:\d\d:\d\d", text[text.index(word) :])[0] for word in ("Asking", "Saving"))
    assert asking.startswith("Asking: 1 of 2 priors")
    assert "━" in asking
    assert "━" not in saving


def test_the_clock_goes_on_when_a_bar_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(show, "Console", lambda **_: Console(file=stream, force_terminal=True, width=100))
    with show.working("Reading") as progress:
        for done in (0, 9, 0):
            progress(Event(done=done, total=9, unit="rows"))
        until(lambda: re.search(r"\d:\d\d:(?!00)\d\d", stream.getvalue()))
    assert "Reading, pass 2: 0 of 9 rows" in stream.getvalue()


def test_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of ten were there before; then one took 30 s, so the other seven take 210 s."""
    assert [show.time_left(seconds) for seconds in (0.0, 90.0, 91.0, 600.0)] == [
        "0 s left", "90 s left", "about 2 min left", "about 10 min left",
    ]  # fmt: skip
    stream = io.StringIO()
    monkeypatch.setattr(show, "Console", lambda **_: Console(file=stream, force_terminal=True, width=100))
    with show.counting("Experiments") as progress:
        for done, clock in ((2, 100.0), (3, 130.0)):
            monkeypatch.setattr(show.time, "perf_counter", lambda clock=clock: clock)
            progress(Event(done=done, total=10, unit="experiments"))
            if done == 2:
                assert "left" not in stream.getvalue()
    assert " 3/10" in stream.getvalue()
    assert "about 4 min left" in stream.getvalue()
