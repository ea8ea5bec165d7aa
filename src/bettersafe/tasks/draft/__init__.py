"""Draft of a task file from the columns of a log: guesses with reasons, and open decisions.

A column gets a role if its name, or a word in its name, is common for that role and its cells are valid for it: a step must be
a whole number, unique in its episode; an end must be true or false; a probability must lie in (0, 1]. If no name matches, a
missing role goes to the only column with valid cells. Equally good alternatives are listed beside a guess. A role without a
guess becomes a commented line.
"""

from __future__ import annotations

from bettersafe.tasks.draft.guess import Start, guess_task
from bettersafe.tasks.draft.write import start_json, task_text, write_start

__all__ = ["Start", "guess_task", "start_json", "task_text", "write_start"]
