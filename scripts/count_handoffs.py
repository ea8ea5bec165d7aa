"""Count the hand-offs of `bettersafe improve` on the way from a log to certificate.json.

    python scripts/count_handoffs.py improve log.csv -o RUN --objective NAME --hold-out 0.3 --force

A hand-off is a distinct pair of a module and a function of another folder that it calls (properties such as `n_states` and
constructors of dataclasses included). Calls of `errors`, `typing` and `_system`, which support all folders, do not count, nor do
those by the command line, the report and their texts. Counting ends when the certificate is turned into JSON.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from bettersafe.cli.main import main

if TYPE_CHECKING:
    from types import FrameType

LEFT_OUT = ("errors", "typing", "_system", "text", "report", "explore", "cli")
SIZES = ("n_states", "n_actions", "n_objectives", "n_pairs", "n_rows", "n_episodes", "n_truncated", "sizes")

handoffs: dict[tuple[str, str, str], None] = {}


def module_of(frame: FrameType) -> str:
    """Module of the code of a frame."""
    return str(frame.f_globals.get("__name__", ""))


def note(frame: FrameType, event: str, _: Any) -> None:
    """Profiler: keep calls between folders."""
    callee = module_of(frame)
    if event != "call" or not callee.startswith("bettersafe.") or any(key[2] == "certificate_json" for key in handoffs):
        return
    back = frame.f_back
    while back is not None and not module_of(back).startswith("bettersafe."):  # through NumPy, dataclasses and the like
        back = back.f_back
    if back is None or "<module>" in (frame.f_code.co_name, back.f_code.co_name):
        return
    caller = module_of(back)
    rooms = [name.split(".")[1] for name in (caller, callee)]
    if rooms[0] != rooms[1] and not set(rooms) & set(LEFT_OUT):
        handoffs[caller, callee, frame.f_code.co_qualname.rpartition(".")[2]] = None


def leave(code: int) -> NoReturn:
    """The command ends with os._exit, which would skip the count."""
    raise SystemExit(code)


os._exit = leave  # type: ignore[assignment]
sys.setprofile(note)
try:
    main()
except SystemExit:
    sys.setprofile(None)
    for caller, callee, name in handoffs:
        print(f"{caller.removeprefix('bettersafe.')} -> {callee.removeprefix('bettersafe.')}.{name}", file=sys.stderr)
    without = sum(name not in SIZES for *_, name in handoffs)
    print(f"{len(handoffs)} hand-offs, {without} of them other than reads of sizes", file=sys.stderr)
