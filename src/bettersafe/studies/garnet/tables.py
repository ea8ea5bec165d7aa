"""Tables of the random-world study in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from bettersafe.studies.garnet.plan import ABOUT, FAMILIES, SIZES, STUDY
from bettersafe.studies.summary import METHOD, summarise, with_intervals
from bettersafe.studies.tables import SE_NOTE, by_size, with_interval, with_se, words

if TYPE_CHECKING:
    import pyarrow as pa


def garnet_tables(rows: pa.Table, *, note: str = "") -> str:
    """The tables as one Markdown page; ``note`` is a sentence at its top."""
    first = summarise(rows)["cmdps"][0].as_py()
    delta = rows["delta"][0].as_py()
    page = [f"# {STUDY}", ABOUT + ".", *([note] if note else [])]
    page.append(
        f"{first} {'world' if first == 1 else 'worlds'} of each family, δ = {delta:g}, λ = (1, 0). Improvement in % of the baseline's return; {SE_NOTE.replace('CMDP', 'world')}."
        " Failure: worse than the baseline on some objective. Brackets: 95 % Clopper–Pearson interval; parentheses: number of worlds."
    )
    for name, family in FAMILIES.items():
        here = rows.filter(pc.equal(rows["family"], name))
        if here.num_rows == 0:
            continue
        found = [with_intervals(summarise(here, by)) for by in ((*METHOD, "episodes"), METHOD)]
        records = {(words(r), r.get("episodes")): r for part in found for r in part.to_pylist()}
        page.append(f"## {family.title[0].upper() + family.title[1:]}, ρ = {family.quality:g}")
        page += by_size(records, SIZES, "failure rate", with_interval)
        page += by_size(records, SIZES, "improvement, %", lambda r: with_se(r["improvement"], r["improvement_se"], 1))
    return "\n\n".join(page) + "\n"


def garnet_summary(rows: pa.Table) -> pa.Table:
    """Summary table for summary.csv."""
    return with_intervals(summarise(rows, ("family", *METHOD, "episodes")))
