"""Declared events of a task: whether they fit its log, and what does not use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bettersafe.methods.facts import METHODS
from bettersafe.posterior.events import event_pairs

if TYPE_CHECKING:
    from bettersafe.certificate.certificate import Certificate
    from bettersafe.logs.counts import Counts
    from bettersafe.runs.run import Run
    from bettersafe.tasks.task import Task


def check_events(task: Task, counts: Counts) -> None:
    """Raises ParameterError if a declared event does not fit the objectives, states and actions of the log."""
    event_pairs(task.events, counts.objectives, counts.state_labels, counts.action_labels)


def unused_events(task: Task, certificate: Certificate | None) -> tuple[str, ...]:
    """What does not use the task's declared events, in words, for notes and certificates."""
    names = ", ".join(event.name for event in task.events)
    facts = METHODS[task.resolved_method]
    if not names:
        return ()
    if not facts.posterior:
        return (
            f"Declared events ({names}) are not used by {facts.name}: its model, bounds and test know only what the log has shown. b-opt"
            " uses them.",
        )
    return () if certificate is None or certificate.evidence == "posterior" else _not_in_test(names)


def untested_events(run: Run) -> tuple[str, ...]:
    """The same for a later test of a run's policy."""
    return _not_in_test(", ".join(event["name"] for event in run.info.settings.get("events", ())))


def _not_in_test(names: str) -> tuple[str, ...]:
    text = f"Declared events ({names}) are not in the test: it knows only what its episodes have shown."
    return (text,) if names else ()
