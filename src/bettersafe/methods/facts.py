"""The table of facts about methods: `METHODS`.

The command line, the explorer, the report, printed results and the studies read this table; there is no other list of methods.
It imports no method, and no NumPy, before one is made: ``bettersafe --help`` reads it too.
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
    """Facts about a method.

    Attributes:
        name: Name in task files, options, runs and rows of studies: "g-opt".
        title: Name for people: "G-OPT".
        sentence: What it returns, for help and reports; without a capital or a full stop, to stand behind the name.
        function: Where it is defined, as ``module:function``.
        budget: Has a deviation budget ε.
        per_state: Policy iteration with one small program per state: quick, and ``max_rounds`` caps its rounds.
        episodes: Needs whole episodes, some of them held out for a test of its candidates; counts are not enough.
        posterior: Tests its candidates under the posterior.
        proven: Within its budget Proposition 3.1 bounds the loss on every objective.
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
        """Whether the policy follows from one model; if not, the method makes candidates, tests them and chooses one."""
        return not (self.episodes or self.posterior)

    @property
    def counts(self) -> bool:
        """Whether counts are enough."""
        return not self.episodes

    @property
    def explorable(self) -> bool:
        """Whether the explorer offers it: there is a budget to move, and the policy follows quickly."""
        return self.budget and self.per_state

    def load(self) -> Callable[..., Any]:
        """The method's function; its module is imported now."""
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
            model: The estimated model.
            baseline: π_b, shape [X, A].
            preference: λ ≥ 0, shape [d].
            epsilon: Deviation budget ε, for a method that has one.
            engine: "auto", "native" or "highs".
            max_rounds: Cap on rounds; the method's own if left out.
            progress: Called after every round.
        """
        if not self.one_model:
            raise ParameterError(
                f"{self.name} chooses among candidates and needs more than a model; call bettersafe.{self.load().__name__}."
            )
        more: dict[str, Any] = {"epsilon": epsilon} if self.budget else {}
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
"""All methods by name, the recommended first."""


def facts_of(name: str) -> Facts:
    """Facts about the method of a saved run; of a method that this version does not know, its name alone."""
    return METHODS.get(name) or Facts(name=name, title=name, sentence="unknown to this version", function="")
