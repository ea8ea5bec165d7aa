"""Table of methods and their properties: `METHODS`.

Command line, explorer, report and studies read this table; there is no other list of methods. A method's module is imported
only when the method is used, and NumPy not at all, because ``bettersafe --help`` reads the table too.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bettersafe.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from bettersafe.mdp.choices import Engine
    from bettersafe.methods.result import Improvement
    from bettersafe.model import Model
    from bettersafe.typing import Progress


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Properties of a method.

    Attributes:
        name: Name in task files, options, runs and rows of studies: "g-opt".
        title: Name for people: "G-OPT".
        sentence: Description for help and reports, to follow the name; no capital, no full stop.
        function: Function, as ``module:function``.
        budget: Whether the method has a deviation budget ε.
        per_state: Whether it is policy iteration with one small program per state: fast, and limited by ``max_rounds``.
        episodes: Whether it needs episodes, part of them held out to test candidates; counts are not enough.
        posterior: Whether it tests candidates under the posterior.
        proven: Whether Proposition 3.1 bounds the loss on every objective within the budget.
    """

    name: str
    title: str
    sentence: str
    function: str
    budget: bool = False
    per_state: bool = False
    episodes: bool = False
    posterior: bool = False
    proven: bool = False

    @property
    def one_model(self) -> bool:
        """Whether the policy follows from one model; if not, the method tests candidates and selects one."""
        return not (self.episodes or self.posterior)

    @property
    def counts(self) -> bool:
        """Whether counts are enough."""
        return not self.episodes

    @property
    def explorable(self) -> bool:
        """Whether the explorer offers the method: it has a budget and is fast."""
        return self.budget and self.per_state

    def load(self) -> Callable[..., Any]:
        """Import the method's module and return its function."""
        module, _, name = self.function.partition(":")
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
        return function

    def make(
        self,
        model: Model,
        baseline: npt.ArrayLike,
        *,
        preference: npt.ArrayLike,
        epsilon: float = math.inf,
        engine: Engine = "auto",
        max_rounds: int | None = None,
        progress: Progress | None = None,
    ) -> Improvement:
        """Improve on ``baseline`` in ``model``; for methods with `one_model`.

        Args:
            model: Estimated model.
            baseline: π_b, shape [X, A].
            preference: λ ≥ 0, shape [d].
            epsilon: Deviation budget ε; ignored by methods without a budget.
            engine: "auto", "native" or "highs".
            max_rounds: Limit on rounds; default: the method's.
            progress: Callback after every round.
        """
        if not self.one_model:
            raise ParameterError(
                f"{self.name} selects among candidates and needs more than a model; call bettersafe.{self.load().__name__}."
            )
        more: dict[str, float] = {"epsilon": epsilon} if self.budget else {}
        if max_rounds is not None:
            more["max_rounds"] = max_rounds
        result: Improvement = self.load()(
            model, baseline, preference=preference, engine=engine, progress=progress, **more
        )
        return result


METHODS: dict[str, Facts] = {
    facts.name: facts
    for facts in (
        Facts(
            name="b-opt",
            title="B-OPT",
            sentence="the best of many candidates that are safe under the posterior",
            function="bettersafe.methods.b_opt:b_opt",
            posterior=True,
        ),
        Facts(
            name="s-opt",
            title="S-OPT",
            sentence="the best policy within a budget that loses on no objective in any state of the estimated model",
            function="bettersafe.methods.s_opt:s_opt",
            budget=True,
            per_state=True,
            proven=True,
        ),
        Facts(
            name="g-opt",
            title="G-OPT",
            sentence="the best policy within a budget that loses on no objective in expected return",
            function="bettersafe.methods.g_opt:g_opt",
            budget=True,
        ),
        Facts(
            name="h-opt",
            title="H-OPT",
            sentence="the best candidate that passes a safety test on held-out episodes",
            function="bettersafe.methods.h_opt:h_opt",
            episodes=True,
        ),
        Facts(
            name="soft-spibb",
            title="Soft-SPIBB",
            sentence="the best policy within a budget; single objectives are not protected",
            function="bettersafe.methods.s_opt:soft_spibb",
            budget=True,
            per_state=True,
        ),
        Facts(
            name="adv-linearized",
            title="Adv-Linearized",
            sentence="the best policy that loses on no objective in any state of the estimated model; no budget",
            function="bettersafe.methods.s_opt:adv_linearized",
            per_state=True,
        ),
        Facts(
            name="linearized",
            title="Linearized",
            sentence="the best policy of the estimated model; no budget, and nothing is protected",
            function="bettersafe.methods.s_opt:linearized",
            per_state=True,
        ),
    )
}
"""All methods by name; the recommended one is first."""


def facts_of(name: str) -> Facts:
    """Properties of the method of a saved run; only the name if this version does not have the method."""
    return METHODS.get(name) or Facts(name=name, title=name, sentence="unknown to this version", function="")
