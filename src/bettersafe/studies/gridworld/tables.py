"""Tables of the gridworld study in Markdown, with standard errors, medians and the published values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from bettersafe.envs.gridworld import THRESHOLD, THRESHOLD_MANY_KINDS
from bettersafe.errors import check_choice
from bettersafe.studies.case import TOL
from bettersafe.studies.gridworld.plan import PLANS, VARIANTS
from bettersafe.studies.gridworld.published import PUBLISHED
from bettersafe.studies.gridworld.summary import CELL, changes, tuned
from bettersafe.studies.styles import plain_name
from bettersafe.studies.summary import METHOD, summarise, with_intervals
from bettersafe.studies.tables import NONE, SE_NOTE, by_size, in_order, markdown, with_interval, with_se, words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bettersafe.typing import Row

REPRODUCTION = next(iter(VARIANTS))
FAILURE_NOTE = f"Failure: worse than the baseline on some objective by more than {TOL:.0e} of its range.".replace(
    "e-0", "e-"
)


def gridworld_tables(rows: pa.Table, study_id: str, *, note: str = "") -> str:
    """The tables of a study as one Markdown page.

    Args:
        rows: Rows of the study.
        study_id: Id of the study, such as ``gridworld/fixed``.
        note: Sentence at the top of the page, such as that the sweep is unfinished.
    """
    check_choice("study_id", study_id, PLANS)
    plan = PLANS[study_id]
    page = [f"# {study_id}", plan.about + "."]
    page += [note] if note else []
    evaluated = _tuned_both(rows) if plan.tuned else rows
    summary = summarise(evaluated, (*METHOD, "episodes", "kinds", "variant"))
    cmdps = summary["cmdps"][0].as_py()
    where = f"{cmdps} CMDPs, without the one used for tuning" if evaluated is not rows else f"{cmdps} CMDPs"
    page.append(f"{where}; {SE_NOTE}; the median is over the CMDPs' means. {FAILURE_NOTE}")
    sizes = plan.sizes
    if len(plan.kinds) > 1:
        for kinds in pc.unique(rows["kinds"]).to_pylist():
            page.append(f"## d = {1 + kinds}")
            page += _comparison(summary.filter(pc.equal(summary["kinds"], kinds)), {}, sizes, level=3)
    elif len(plan.variants) > 1:
        page += _comparison(summary.filter(pc.equal(summary["variant"], REPRODUCTION)), {}, sizes, level=2)
        page += _changes(rows, sizes)
    else:
        page += _comparison(summary, PUBLISHED.get(study_id, {}), sizes, level=2)
    if evaluated is not rows:
        page += _choices(evaluated, sizes)
    if plan.has_b_opt:
        page += _against(rows, sizes)
    return "\n\n".join(page) + "\n"


def _tuned_both(rows: pa.Table) -> pa.Table:
    """Rows with parameters chosen for each size of the log, and those with one choice for all sizes, as in the paper."""
    each, once = tuned(rows), tuned(rows, once=True)
    once = once.filter(pc.ends_with(once["parameter"], " once"))
    return pa.concat_tables([each, once])


def gridworld_summary(rows: pa.Table, study_id: str) -> pa.Table:
    """Summary table for summary.csv: over all preferences and qualities ("all"), and for each of them.

    For the tuned study it contains every parameter and the tuned ones, on the CMDPs that were not used for tuning.
    """
    if PLANS[study_id].tuned:
        chosen = _tuned_both(rows).drop_columns(["chosen"])
        chosen = chosen.filter(pc.not_equal(chosen["parameter"], ""))  # methods without one are in `others`
        others = rows.filter(pc.is_in(rows["cmdp"], pc.unique(chosen["cmdp"])))
        rows = pa.concat_tables([others, chosen])
    quality = pa.array([f"{value:g}" for value in rows["quality"].to_pylist()])
    rows = rows.set_column(rows.column_names.index("quality"), "quality", quality)
    pooled = rows
    for name in ("preference", "quality"):
        pooled = pooled.set_column(pooled.column_names.index(name), name, pa.array(["all"] * rows.num_rows))
    by = ("variant", "kinds", "preference", "quality", *METHOD, "episodes")
    return with_intervals(pa.concat_tables([summarise(pooled, by), summarise(rows, by)]))


def _comparison(
    summary: pa.Table, published: dict[str, tuple[tuple[float, float], ...]], sizes: Sequence[int], *, level: int
) -> list[str]:
    """Tables of mean improvement, median improvement and failure rate, with columns for our and the published values."""
    records = {(words(record), record["episodes"]): record for record in summary.to_pylist()}
    methods = in_order(name for name, _ in records)
    parts: list[tuple[str, Callable[[Row], str], Callable[[tuple[float, float]], str] | None]] = [
        ("Mean improvement", lambda r: with_se(r["improvement"], r["improvement_se"], 1), lambda p: f"{p[0]:g}"),
        ("Median improvement", lambda r: f"{r['median']:.1f}", None),
        ("Failure rate", lambda r: with_se(r["failure"], r["failure_se"], 3), lambda p: f"{p[1]:.3f}"),
    ]
    lines = []
    for title, ours, theirs in parts:
        with_published = bool(published) and theirs is not None
        head = ["method"]
        for size in sizes:
            head += [f"\\|D\\| = {size}", "published"] if with_published else [f"\\|D\\| = {size}"]
        body = []
        for method in methods:
            line = [plain_name(method)]
            for n, size in enumerate(sizes):
                record = records.get((method, size))
                line.append(NONE if record is None else ours(record))
                if with_published and theirs is not None:
                    line.append(theirs(published[method][n]) if method in published else NONE)
            body.append(line)
        lines += [f"{'#' * level} {title}", markdown(head, body)]
    return lines


def _changes(rows: pa.Table, sizes: Sequence[int]) -> list[str]:
    """Tables of the change of improvement and failure rate by each variant, at each size."""
    records = {
        (record["variant"], words(record), record["episodes"]): record
        for record in summarise(changes(rows, reference=REPRODUCTION), ("variant", *METHOD, "episodes")).to_pylist()
    }
    lines = [
        "## Effect of each convention",
        f"Change of the mean improvement / of the failure rate relative to “{REPRODUCTION}”, paired by CMDP and log.",
    ]
    for variant in dict.fromkeys(name for name, _, _ in records):
        body = []
        for method in in_order(name for _, name, _ in records):
            found = [records.get((variant, method, size)) for size in sizes]
            body.append([plain_name(method), *(NONE if record is None else _change(record) for record in found)])
        lines += [f"### {variant}", markdown(["method", *(f"\\|D\\| = {size}" for size in sizes)], body)]
    return lines


def _change(record: Row) -> str:
    improvement = with_se(record["improvement"], record["improvement_se"], 1, sign="+")
    return f"{improvement} / {with_se(record['failure'], record['failure_se'], 3, sign='+')}"


def _choices(evaluated: pa.Table, sizes: Sequence[int]) -> list[str]:
    """Table of the parameters chosen on the first CMDP."""
    chosen: dict[tuple[str, str, float], dict[int, str]] = {}
    columns = [evaluated[name].to_pylist() for name in (*METHOD, *CELL[2:], "chosen")]
    for method, parameter, preference, quality, episodes, choice in zip(*columns, strict=True):
        if choice:
            case = (f"{method} {parameter}", preference, quality)
            chosen.setdefault(case, {})[episodes] = choice.rpartition(" ")[2]  # for H-OPT, the estimator
    head = ["method", "λ", "ρ", *(f"\\|D\\| = {size}" for size in sizes)]
    body = [
        [plain_name(method), f"({preference})", f"{quality:g}", *(choice.get(size, NONE) for size in sizes)]
        for (method, preference, quality), choice in sorted(chosen.items())
    ]
    return ["## Parameters chosen on the first CMDP", markdown(head, body)]


def _against(rows: pa.Table, sizes: Sequence[int]) -> list[str]:
    """Tables of failure rates with intervals and of improvements, for each quality and number of objectives."""
    delta, everywhere = rows["delta"][0].as_py(), "all"
    pages = [
        "## B-OPT against the others",
        f"δ = {delta:g}. Failure rate [95 % Clopper–Pearson interval] (n). Experiments on the same CMDP are correlated, so n is the"
        " effective number of experiments: the number of independent ones with the same standard error. It lies between the number of"
        " CMDPs (used if nothing failed) and the number of experiments.",
    ]
    kinds = sorted(pc.unique(rows["kinds"]).to_pylist())
    qualities = sorted(pc.unique(rows["quality"]).to_pylist())
    by_quality = {everywhere: rows} | {f"{q:g}": rows.filter(pc.equal(rows["quality"], q)) for q in qualities}
    for kind in kinds:
        for quality, some in by_quality.items():
            here = some.filter(pc.equal(some["kinds"], kind))
            found = [with_intervals(summarise(here, by)) for by in ((*METHOD, "episodes"), METHOD)]
            records = {(words(r), r.get("episodes")): r for part in found for r in part.to_pylist()}
            title = f"{f'd = {1 + kind}, ' if len(kinds) > 1 else ''}{'all ρ' if quality == everywhere else f'ρ = {quality}'}"
            first = records[next(iter(records))]
            pages += [
                f"### {title}",
                f"{first['cmdps']} CMDPs, {first['experiments']} experiments for each |D|.",
                *by_size(records, sizes, "failure rate", with_interval),
                *by_size(records, sizes, "improvement", lambda r: with_se(r["improvement"], r["improvement_se"], 1)),
            ]
    if len(kinds) > 1:
        pages += _relative(rows, kinds, sizes)
    return pages


def _relative(rows: pa.Table, kinds: Sequence[int], sizes: Sequence[int]) -> list[str]:
    """Tables of the improvement with d objectives relative to d = 2, r = m_d/m_2. CMDPs of different d are independent:

    se(r) = |r| √( (se_d/m_d)² + (se_2/m_2)² )
    """
    few = kinds[0]
    lines = [
        f"## Improvement relative to d = {1 + few}",
        f"Mean improvement at d = {1 + few}, and that of larger d as a share of it, ± one standard error; {NONE} if the"
        f" improvement at d = {1 + few} is less than two standard errors above 0. The worlds differ with d as well: with"
        f" d = 2 the one pit objective must stay above {_signed(THRESHOLD)}, with larger d all of them above"
        f" {_signed(THRESHOLD_MANY_KINDS)}, which changes the baselines and leaves"
        f" less to gain. The best possible is the largest true improvement of a policy that is no worse than the baseline on any objective.",
    ]
    for size in (*sizes, None):
        here = rows if size is None else rows.filter(pc.equal(rows["episodes"], size))
        if here.num_rows == 0:
            continue
        records = {(words(r), r["kinds"]): r for r in summarise(here, (*METHOD, "kinds")).to_pylist()}
        body = []
        for method in in_order(name for name, _ in records):
            first = records.get((method, few))
            line = [plain_name(method)]
            line.append(NONE if first is None else with_se(first["improvement"], first["improvement_se"], 1))
            for kind in kinds[1:]:
                other = records.get((method, kind))
                line.append(NONE if first is None or other is None else _share(other, first))
            body.append(line)
        title = "all \\|D\\|" if size is None else f"\\|D\\| = {size}"
        columns = [f"d = {1 + kind}" for kind in kinds]
        lines += [f"### {title}", markdown(["method", *columns], body)]
        if all(("optimum", kind) in records for kind in kinds):
            possible = [
                [
                    plain_name(method),
                    *(
                        f"{100 * records[method, kind]['improvement'] / records['optimum', kind]['improvement']:.1f}".replace(
                            "-", "−"
                        )
                        if (method, kind) in records
                        else NONE
                        for kind in kinds
                    ),
                ]
                for method in in_order(name for name, _ in records if name != "optimum")
            ]
            lines += [markdown(["% of the best possible", *columns], possible)]
    return lines


def _share(record: Row, whole: Row) -> str:
    """Improvement of one record relative to another, with its standard error."""
    part, unit = record["improvement"], whole["improvement"]
    errors = (record["improvement_se"], whole["improvement_se"])
    if unit <= (0.0 if math.isnan(errors[1]) else 2.0 * errors[1]):
        return NONE
    return with_se(part / unit, math.hypot(errors[0], part / unit * errors[1]) / unit, 2)


def _signed(value: float) -> str:
    return f"{value:g}".replace("-", "−")
