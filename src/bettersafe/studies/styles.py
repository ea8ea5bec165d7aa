"""Names, colours and markers of methods, the same in all tables and figures.

The hues are Okabe and Ito's colour-blind safe palette, with red for B-OPT and greys for G-OPT. Within a family of methods, the
shade darkens with the parameter and the markers differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bettersafe.methods.facts import METHODS, facts_of
from bettersafe.studies.rules import RULES


@dataclass(frozen=True)
class Style:
    """Colour, marker and line style of a method for Matplotlib; ``scale`` enlarges thin markers."""

    colour: str
    marker: str
    line: Literal["-", "--", "-."] = "-"
    scale: float = 1.0


STYLES: dict[str, Style] = {
    "linearized": Style("#3B3B3B", "X"),
    "adv-linearized": Style("#E69F00", "v"),
    "s-opt 0.001": Style("#A9DBF7", "p"),
    "s-opt 0.01": Style("#56B4E9", "o"),
    "s-opt 0.1": Style("#0072B2", "s"),
    "s-opt 1.0": Style("#00344F", "D"),
    "s-opt tuned": Style("#0072B2", "h"),
    "h-opt published dr": Style("#6FCFAE", "^", "--"),
    "h-opt paper dr": Style("#009E73", ">", "--"),
    "h-opt paper-linearized dr": Style("#8FBF3F", "8", "--"),
    "h-opt paired dr": Style("#4E8F7A", "h", "--"),
    "h-opt uncovered dr": Style("#A8C800", "H", "--"),
    "h-opt sequential dr": Style("#00523C", "<", "--"),
    "h-opt published tuned": Style("#6FCFAE", "^", "--"),
    "h-opt paper tuned": Style("#009E73", ">", "--"),
    "h-opt sequential tuned": Style("#00523C", "<", "--"),
    "soft-spibb 0.1": Style("#CC79A7", "d", "-."),
    "soft-spibb 1.0": Style("#7D2F59", "P", "-."),
    "lagrangian 0.01": Style("#F29A5C", "d", "-."),
    "lagrangian 0.1": Style("#D55E00", "P", "-."),
    "lagrangian 1.0": Style("#7A3500", "p", "-."),
    "g-opt 0.1": Style("#8A8A8A", "d", "-."),
    "g-opt 1.0": Style("#000000", "P", "-."),
    "b-opt": Style("#CC0000", "*", scale=1.8),
    "optimum": Style("#BDBDBD", "_", "--", scale=1.8),
}
"""Styles by method as text (`bettersafe.studies.case`), in the order of legends."""


OTHERS = {"lagrangian": ("Lagrangian", "η"), "optimum": ("Best possible", "")}
"""Title and parameter symbol of the methods that exist only in studies."""


LAGRANGIAN_WORDS = {"norm": "B", "tol": "ω", "max_rounds": "rounds"}
"""Signs of the Lagrangian's other settings."""


def plain_name(words: str) -> str:
    """Display name of a method: "S-OPT ε = 0.1" for ``s-opt 0.1``."""
    method, _, parameter = words.partition(" ")
    facts = facts_of(method)
    if facts.episodes:
        rule, _, estimator = parameter.partition(" ")
        detail = {"dr": "", "tuned": ", tuned", "tuned once": ", tuned once"}.get(estimator, f", {estimator.upper()}")
        return f"{facts.title} ({RULES[rule].title if rule in RULES else rule}{detail})"
    for word, sign in LAGRANGIAN_WORDS.items():
        parameter = parameter.replace(f" {word}=", f", {sign} = ")
    name, symbol = OTHERS.get(method, (facts.title, "ε" if facts.budget else ""))
    if not symbol:
        return name if method in (*METHODS, *OTHERS) else words
    return f"{name} {symbol} {parameter}" if parameter.startswith("tuned") else f"{name} {symbol} = {parameter}"
