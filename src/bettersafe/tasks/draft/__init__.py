"""A first task file from the columns of a log: guesses, each with its reason, and what is left to decide.

Names come first: a column is taken for a role when its name, or a word of it, is one that people give to that role. Its
cells have a veto: a step must be a whole number that stands once in an episode, an end must be true or false, a
probability must be one. Where names say nothing, a column that alone could play a missing role is taken for it. Nothing is
guessed between equals without saying so, and what can't be guessed stays a commented line.
"""

from __future__ import annotations

from bettersafe.tasks.draft.guess import Start, guess_task
from bettersafe.tasks.draft.write import start_json, task_text, write_start

__all__ = ["Start", "guess_task", "start_json", "task_text", "write_start"]
