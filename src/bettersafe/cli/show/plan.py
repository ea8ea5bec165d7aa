"""Plan of a test on the terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import typer

from bettersafe.evaluation.forecast import largest_step
from bettersafe.logs.dataset import user_sign
from bettersafe.text.numbers import number

if TYPE_CHECKING:
    from bettersafe.evaluation.forecast import Forecast
    from bettersafe.logs.dataset import Objective


def print_plan(found: tuple[Forecast, ...], objectives: tuple[Objective, ...], episodes: int) -> None:
    """Print what a test could show, a paragraph for every step."""
    typer.echo(f"A test on {episodes:,} other episodes could show (no test was made):")
    for each in found:
        worth = "too few effective episodes: it would be refused" if not each.trusted else "could pass"
        if each.trusted and not each.could_pass:
            worth = "would hardly pass"
        needed = (
            "" if math.isinf(each.needed) or not each.trusted else f"; about {math.ceil(each.needed):,} episodes needed"
        )
        typer.echo(
            f"  {100 * each.step:.0f} % of the change: {worth} (about {each.effective:,.0f} effective episodes{needed})"
        )
        for k, objective in enumerate(objectives):
            gain, least = (user_sign(objective, float(row[k])) for row in (each.gain, each.detectable))
            typer.echo(
                f"    {objective.title}: change {number(gain, signed=True)} in the policy's own log, which is optimistic;"
                f" detectable from {number(least, signed=True)}"
            )
    best = largest_step(found)
    if best is None:
        typer.echo("No step is likely to pass. Collect more episodes, accept a loss (--zeta), or try --estimator drl.")
    elif best.step < 1.0:
        typer.echo(
            f"The largest step that could pass is {100 * best.step:.0f} % of the change: with that probability follow the policy, else the"
            " baseline."
        )
