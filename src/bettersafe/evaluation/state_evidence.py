"""Results of the checks whether the logged state is enough, as the certificate stores them. Without NumPy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

Kind = Literal["return", "step-before", "small-step", "open-end"]

FAMILY_LEVEL = 0.01
"""Probability that any of the three checks speaks against a log whose state is enough; approximate."""

LEVEL = FAMILY_LEVEL / 3.0
"""Level of one check."""

NEGLIGIBLE = 0.01
"""A difference below this share of the standard deviation of an episode's return is not held against the model."""

STEP = 0.1
"""Length of the small step: the policy is mixed with the baseline, 10 to 90."""

NAMED = 3
"""Largest number of objectives that a sentence names."""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Difference between model and log on one objective, in the sign and unit of its column.

    Attributes:
        objective: Name of the objective.
        model: Value by the model.
        log: Value by the log.
        error: Standard error of the difference; NaN for "step-before".
        statistic: Test statistic, standard normal for large logs if the state is enough.
        p_value: p-value, corrected for the number of tests of the check.
        scale: Standard deviation of an episode's return.
        label: Label of the objective for people; empty to use the name.
    """

    objective: str
    model: float
    log: float
    error: float
    statistic: float
    p_value: float
    scale: float
    label: str = ""

    @property
    def title(self) -> str:
        """The label, or else the name."""
        return self.label or self.objective

    @property
    def effect(self) -> float:
        """Value by the log minus value by the model, in units of return."""
        return self.log - self.model

    @property
    def matters(self) -> bool:
        """Whether the difference is at least 1 % of the spread of returns, and more than rounding."""
        rounding = 1e-9 * max(abs(self.model), abs(self.log))
        return abs(self.effect) > max(NEGLIGIBLE * self.scale, rounding)


@dataclass(frozen=True, kw_only=True)
class StateCheck:
    """Result of one check whether the logged state is enough.

    Attributes:
        kind: "return": the model's return of the baseline against the logged one. "step-before": do earlier steps help to predict
            the next state and reward? The model says 0; the log says by how much they move the expected return after a decision (root
            mean square). "small-step": the gain of a step of 10 % towards the policy, by the model and by the logged episodes.
            "open-end": the log stopped in states without decisions; does the policy go there more often? Made only if it did.
        gaps: Differences, one per objective; empty if nothing was checked.
        p_next_state: p-value for the next state alone, corrected as those of ``gaps``; NaN for other kinds.
        reason: Reason why nothing was checked; empty if it was.
        required: Whether the check speaks against the model if it was not made: states that were made from continuous features are
            not taken as enough without it. Of "open-end", whether the policy goes there more often.
        level: Level of the check.
        returns: Words on the returns that are compared, if they are not those of whole logged episodes.

    Examples:
        >>> checks = bettersafe.check_states(log)
        >>> [check.kind for check in checks], any(check.against for check in checks)
        (['return', 'step-before'], False)
    """

    kind: Kind
    gaps: tuple[Gap, ...] = ()
    p_next_state: float = math.nan
    reason: str = ""
    required: bool = False
    level: float = LEVEL
    returns: str = ""

    @property
    def p_value(self) -> float:
        """Smallest p-value of the check, corrected for the number of tests; NaN if nothing was checked."""
        known = [p for p in (self.p_next_state, *(gap.p_value for gap in self.gaps)) if not math.isnan(p)]
        return min(known, default=math.nan)

    @property
    def against(self) -> bool:
        """Whether the check speaks against the model: a difference that is significant and not negligible, or a missing check."""
        if self.reason:
            return self.required
        if self.p_next_state < self.level and any(gap.matters for gap in self.gaps):
            return True
        return any(gap.p_value < self.level and gap.matters for gap in self.gaps)

    @property
    def shown(self) -> tuple[Gap, ...]:
        """Gaps in the order of their evidence, the strongest first; those that speak against the model, if there are any."""
        order = sorted(self.gaps, key=lambda gap: (gap.p_value, -abs(gap.statistic)))
        guilty = [gap for gap in order if gap.p_value < self.level and gap.matters]
        return tuple(guilty if guilty else order)

    @property
    def sentence(self) -> str:
        """Result in one sentence, without a full stop."""
        if self.kind == "open-end":
            return self.reason
        if self.reason:
            needed = ", and the states were made from continuous features" if self.required else ""
            return f"{TOPICS[self.kind]} was not checked: {self.reason}{needed}"
        shown = self.shown[:NAMED]
        if self.kind == "return":
            both = _listed(
                f"{g.title} {_n(g.model)} in the model, {_n(g.log)} in the log, ± {_n(g.error)} on the difference"
                for g in shown
            )
            verb = "contradicts" if self.against else "agrees with"
            return f"the model's return of the baseline {verb} the logged one ({both}; {self._chance})"
        if self.kind == "small-step":
            both = _listed(
                f"{g.title} {_n(g.model, '+')} by the model, {_n(g.log, '+')} by the episodes, ± {_n(g.error)} on the difference"
                for g in shown
            )
            verb = "contradict" if self.against else "agree with"
            return f"the logged episodes {verb} the model on a step of {STEP:.0%} towards the policy ({both}; {self._chance})"
        if not self.against:
            return f"earlier steps do not help to predict what follows a decision ({self._chance})"
        moved = _listed(f"{g.title} by about {_n(g.log)}" for g in shown)
        return (
            "earlier steps of the episode help to predict what follows a decision, so the state does not hold all that matters: they"
            f" move the expected return, {moved} ({self._chance})"
        )

    @property
    def _chance(self) -> str:
        """The p-value in words."""
        p = self.p_value
        chance = "p < 1e-6" if p < 1e-6 else f"p = {p:.2g}"
        return f"{chance}; {self.returns}" if self.returns else chance


TOPICS: dict[Kind, str] = {
    "return": "the model's return of the baseline",
    "step-before": "whether earlier steps help to predict what follows",
    "small-step": "a small step towards the policy",
    "open-end": "what follows where the log stopped",
}
"""Subject of each check, for sentences."""


def _n(value: float, sign: str = "") -> str:
    """Three digits, with a minus sign as in all results; ``sign`` is "+" for changes."""
    return f"{value:{sign}.3g}".replace("-", "−")


def _listed(parts: Iterable[str]) -> str:
    return "; ".join(parts)
