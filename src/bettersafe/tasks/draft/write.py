"""The task file that the guesses make: TOML, with a comment on each of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bettersafe._system.files import whole_file
from bettersafe.errors import RunError
from bettersafe.logs._reader.checks import ROW_ORDER
from bettersafe.tasks.draft.guess import guess_task
from bettersafe.tasks.draft.words import REQUIRED, ROLES, quoted, words_of

if TYPE_CHECKING:
    from bettersafe.tasks.draft.guess import Start


_DECIDE = {
    "episode": "name the column that tells episodes apart",
    "step": f'name a column of whole numbers, or, if the rows stand in the order in which they happened: step = "{ROW_ORDER}"',
    "state": "name the column with the state, or make states of measurements with `bettersafe discretize`",
    "action": "name the column with the action that was taken",
}

_WITHOUT = {
    "next_state": "no column was found: the state of the next row is taken",
    "terminated": "no column was found: the last row of every episode is taken as its end",
    "truncated": "no column was found; needed where the log stopped before the process ended",
    "baseline_prob": "no column was found: the baseline is estimated from how often each action was taken",
}


def task_text(start: Start, data: str) -> str:
    """The task file: TOML with a comment on every guess.

    Args:
        start: The guesses.
        data: The log, relative to the file.
    """
    looked = f"all {start.rows:,} rows" if start.whole else f"the first {start.rows:,} rows"
    lines = [
        f"# What bettersafe is to do, begun from {looked} of the log. Everything here is a guess until you have read it.",
        "# All settings are explained in docs/settings.md.",
        "",
        f"data = {quoted(data)}",
        'method = "auto"               # the best policy that loses on no objective with probability 1 - delta, given the log',
        "delta = 0.1                   # the risk that you accept",
        "",
        "[columns]                     # which column is which",
    ]
    guesses = {guess.role: guess for guess in start.roles}
    for role in ROLES:
        if role in guesses:
            guess = guesses[role]
            others = f"; or {', '.join(quoted(name) for name in guess.others)}?" if guess.others else ""
            lines.append(f"{role} = {quoted(guess.column)}".ljust(29) + f" # since: {guess.reason}{others}")
        elif role in REQUIRED:
            lines += [
                f"# DECIDE {role}: {start.open[role]}.",
                f"#   {_DECIDE[role][0].upper()}{_DECIDE[role][1:]}.",
                f'# {role} = "..."',
            ]
        else:
            lines.append(f'# {role} = "..."'.ljust(29) + f" # {_WITHOUT[role]}")
    if "terminated" in guesses and "truncated" not in guesses and words_of(guesses["terminated"].column) == "done":
        lines.append('# Does "done" also mark where only the logging stopped? Then the two need a column each.')
    lines += ["", "# One table per objective. No objective may lose; the weights say what is to gain."]
    used = [objective for objective in start.objectives if objective.used]
    if not used:
        lines += [
            "# DECIDE objectives: no column of numbers is left that could be one. At least one is needed.",
            '# [objectives."..."]',
        ]
    for objective in used:
        lines += [
            "",
            f"[objectives.{quoted(objective.column)}]",
            "weight = 1.0                  # 0: not pursued, only protected",
        ]
        if objective.lower_is_better:
            lines.append(
                f"lower_is_better = true        # suggested, since {objective.reason}; remove it if more is better"
            )
        elif objective.reason:
            lines.append(f"# lower_is_better = true      # {objective.reason}")
        lines.append("# discount = 0.99             # what the next step counts against this one")
    left = [objective for objective in start.objectives if not objective.used]
    if left:
        lines += ["", "# Left out; remove the # to protect or pursue it:"]
        lines += [
            f"# [objectives.{quoted(objective.column)}]".ljust(29) + f" # {objective.reason}" for objective in left
        ]
    if start.unused:
        lines += ["", "# Without a use:"]
        lines += [f"#   {quoted(name)}".ljust(29) + f" # {why}" for name, why in start.unused.items()]
    return "\n".join(lines) + "\n"


def write_start(paths: str, output: str | os.PathLike[str], *, force: bool = False) -> Start:
    """Write a task file for a log; returns what was guessed.

    Args:
        paths: The log: a file or a glob. The task file names it relative to itself.
        output: The task file.
        force: Replace the file that is there.
    """
    target = Path(output)
    if target.exists() and not force:
        raise RunError(f"{target} exists; choose another name, or replace it with `force`.")
    start = guess_task(paths)
    text = task_text(start, os.path.relpath(paths, target.parent))
    with whole_file(target) as partial:
        partial.write_text(text, encoding="utf-8")
    return start


def start_json(start: Start, data: str, output: str | os.PathLike[str]) -> dict[str, Any]:
    """The guesses for programs."""
    return {
        "task": str(output),
        "data": data,
        "rows_read": start.rows,
        "complete": start.complete,
        "columns": {guess.role: {"column": guess.column, "reason": guess.reason} for guess in start.roles},
        "undecided": dict(start.open),
        "objectives": [
            {"column": o.column, "used": o.used, "lower_is_better": o.lower_is_better, "reason": o.reason}
            for o in start.objectives
        ],
        "unused": dict(start.unused),
    }
