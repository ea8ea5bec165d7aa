"""Task file from the guesses: TOML with comments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from bettersafe._system.files import whole_file
from bettersafe.errors import RunError
from bettersafe.logs._reader.checks import ROW_ORDER
from bettersafe.logs.roles import REQUIRED, ROLES
from bettersafe.tasks.draft.guess import guess_task
from bettersafe.tasks.draft.words import quoted, words_of

if TYPE_CHECKING:
    from bettersafe.tasks.draft.guess import Start
    from bettersafe.typing import Json


_DECIDE = {
    "episode": "name the column that identifies episodes",
    "step": f'name a column of whole numbers, or, if the rows are in the order of time: step = "{ROW_ORDER}"',
    "state": "name the column with the state, or make states from measurements with `bettersafe discretize`",
    "action": "name the column with the action that was taken",
}

_WITHOUT = {
    "next_state": "no column was found: the state of the next row is used",
    "terminated": "no column was found: the last row of every episode is its end",
    "truncated": "no column was found; needed if the log stopped before the process ended",
    "baseline_prob": "no column was found: the baseline is estimated from how often each action was taken",
}


def task_text(start: Start, data: str) -> str:
    """Text of a task file: TOML with a comment on every guess.

    Args:
        start: Guesses.
        data: Path of the log, relative to the task file.
    """
    looked = f"all {start.rows:,} rows" if start.whole else f"the first {start.rows:,} rows"
    lines = [
        f"# Task for bettersafe, drafted from {looked} of the log. All values are guesses: check them.",
        "# All settings are explained in docs/settings.md.",
        "",
        f"data = {quoted(data)}",
        'method = "auto"               # best policy that, given the log, loses on no objective with probability 1 - delta',
        "delta = 0.1                   # accepted risk",
        "",
        "[columns]                     # roles of the columns",
    ]
    guesses = {guess.role: guess for guess in start.roles}
    for role in ROLES:
        if role in guesses:
            guess = guesses[role]
            others = f"; or {', '.join(quoted(name) for name in guess.others)}?" if guess.others else ""
            lines.append(f"{role} = {quoted(guess.column)}".ljust(29) + f" # reason: {guess.reason}{others}")
        elif role in REQUIRED:
            lines += [
                f"# DECIDE {role}: {start.open[role]}.",
                f"#   {_DECIDE[role][0].upper()}{_DECIDE[role][1:]}.",
                f'# {role} = "..."',
            ]
        else:
            lines.append(f'# {role} = "..."'.ljust(29) + f" # {_WITHOUT[role]}")
    if "terminated" in guesses and "truncated" not in guesses and words_of(guesses["terminated"].column) == "done":
        lines.append('# If "done" is also true where only the logging stopped, use separate columns for the two.')
    lines += ["", "# One table per objective. No objective may lose; the weights set what to improve."]
    used = [objective for objective in start.objectives if objective.used]
    if not used:
        lines += [
            "# DECIDE objectives: no other column of numbers was found. At least one objective is needed.",
            '# [objectives."..."]',
        ]
    for objective in used:
        lines += [
            "",
            f"[objectives.{quoted(objective.column)}]",
            "weight = 1.0                  # 0: protected but not pursued",
        ]
        if objective.lower_is_better:
            lines.append(
                f"lower_is_better = true        # reason: {objective.reason}; remove the line if more is better"
            )
        elif objective.reason:
            lines.append(f"# lower_is_better = true      # {objective.reason}")
        lines.append("# discount = 0.99             # discount factor per step")
    left = [objective for objective in start.objectives if not objective.used]
    if left:
        lines += ["", "# Other columns of numbers; remove the # to make one an objective:"]
        lines += [
            f"# [objectives.{quoted(objective.column)}]".ljust(29) + f" # {objective.reason}" for objective in left
        ]
    if start.unused:
        lines += ["", "# Unused columns:"]
        lines += [f"#   {quoted(name)}".ljust(29) + f" # {why}" for name, why in start.unused.items()]
    return "\n".join(lines) + "\n"


def write_start(paths: str, output: str | os.PathLike[str], *, force: bool = False) -> Start:
    """Write a draft of a task file for a log; returns the guesses.

    Args:
        paths: Log: a file or a glob. The task file names it relative to itself.
        output: Task file to write.
        force: Whether to replace an existing file.
    """
    target = Path(output)
    if target.exists() and not force:
        raise RunError(f"{target} exists; choose another name, or replace it with `force`.")
    start = guess_task(paths)
    text = task_text(start, os.path.relpath(paths, target.parent))
    with whole_file(target) as partial:
        partial.write_text(text, encoding="utf-8")
    return start


def start_json(start: Start, data: str, output: str | os.PathLike[str]) -> Json:
    """Guesses as a JSON document."""
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
