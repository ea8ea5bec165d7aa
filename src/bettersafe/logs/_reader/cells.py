"""SQL that reads one raw cell of any type as a label, a number, a step or a flag.

A cell that can't be read gives NULL, never an error; ``checks.py`` finds and reports it.
"""

from __future__ import annotations

from typing import Literal

Kind = Literal["integer", "text"]  # kind of the labels of a vocabulary
Shape = Literal["int", "huge", "float", "bool", "text", "cell", "json", "null", "nested"]
Family = Literal["integer", "fraction", "huge", "text", "boolean", "nested"]
FAMILIES: tuple[Family, ...] = ("integer", "fraction", "huge", "text", "boolean", "nested")
_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}
_HUGE = {"UBIGINT", "HUGEINT", "UHUGEINT"}
_FITS = "< 9.2e18"  # just inside 2^63
_TRUE = "('true', 't', 'yes', 'y', '1', '1.0')"
_FALSE = "('false', 'f', 'no', 'n', '0', '0.0')"


def shape(kind: str) -> Shape:
    """Shape of cells of DuckDB type ``kind`` (or "CSV"), which determines how they are read."""
    if kind in _INTEGERS:
        return "int"
    if kind in _HUGE:
        return "huge"
    if kind in {"FLOAT", "DOUBLE"} or kind.startswith("DECIMAL"):
        return "float"
    if kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "UNION", "BLOB")):
        return "nested"
    fixed: dict[str, Shape] = {"BOOLEAN": "bool", "CSV": "cell", "JSON": "json", '"NULL"': "null"}
    return fixed.get(kind, "text")


def shown(cell: str, form: Shape) -> str:
    """The cell as text, as written."""
    return f"({cell} ->> '$')" if form == "json" else f"CAST({cell} AS VARCHAR)"


def family(cell: str, form: Shape) -> str:
    """``Family`` of the label in the cell; NULL if missing (NaN in floats)."""
    if form == "cell":
        whole = f"CAST(TRY_CAST({cell} AS BIGINT) AS VARCHAR)"
        real = f"TRY_CAST({cell} AS DOUBLE)"
        # '7' and '7.0' (a spreadsheet's or data frame's 7) are integers; '007' and '1e3' are names.
        return (
            f"CASE WHEN {cell} IS NULL THEN NULL WHEN {cell} IN ({whole}, {whole} || '.0') THEN 'integer'"
            f" WHEN isfinite({real}) AND {real} <> floor({real}) THEN 'fraction' ELSE 'text' END"
        )
    if form == "json":
        real = f"TRY_CAST({shown(cell, form)} AS DOUBLE)"
        return (
            f"CASE json_type({cell}) WHEN 'VARCHAR' THEN 'text' WHEN 'BOOLEAN' THEN 'boolean'"
            f" WHEN 'BIGINT' THEN 'integer'"
            f" WHEN 'UBIGINT' THEN CASE WHEN {real} {_FITS} THEN 'integer' ELSE 'huge' END"
            f" WHEN 'DOUBLE' THEN CASE WHEN isnan({real}) THEN NULL"
            f" WHEN {real} = floor({real}) AND abs({real}) {_FITS} THEN 'integer' ELSE 'fraction' END"
            f" ELSE CASE WHEN {cell} IS NOT NULL THEN 'nested' END END"
        )
    if form == "float":
        real = f"CAST({cell} AS DOUBLE)"
        return (
            f"CASE WHEN {cell} IS NULL OR isnan({real}) THEN NULL"
            f" WHEN {real} = floor({real}) AND abs({real}) {_FITS} THEN 'integer' ELSE 'fraction' END"
        )
    if form == "huge":
        fits = f"CASE WHEN TRY_CAST({cell} AS BIGINT) IS NULL THEN 'huge' ELSE 'integer' END"
        return f"CASE WHEN {cell} IS NOT NULL THEN {fits} END"
    names: dict[Shape, Family] = {"int": "integer", "bool": "boolean", "text": "text", "nested": "nested"}
    return f"CASE WHEN {cell} IS NOT NULL THEN '{names[form]}' END" if form in names else "CAST(NULL AS VARCHAR)"


def families(form: Shape) -> tuple[Family, ...]:
    """Possible families of a cell; if there is only one, only missing cells need a check."""
    several: dict[Shape, tuple[Family, ...]] = {
        "cell": ("integer", "fraction", "text"),
        "json": FAMILIES,
        "float": ("integer", "fraction"),
        "huge": ("integer", "huge"),
        "null": (),
    }
    one: dict[Shape, Family] = {"int": "integer", "bool": "boolean", "text": "text", "nested": "nested"}
    return several[form] if form in several else (one[form],)


def missing(cell: str, form: Shape) -> str:
    """Whether the cell has no label, i.e. its family is NULL; faster if the type has only one family."""
    return f"({family(cell, form)}) IS NULL" if len(families(form)) > 1 else f"{cell} IS NULL"


def label(cell: str, form: Shape, kind: Kind) -> str:
    """The label in the cell as BIGINT or VARCHAR."""
    if kind == "text":
        return shown(cell, form)
    if form == "float":
        return f"CASE WHEN isfinite(CAST({cell} AS DOUBLE)) THEN CAST({cell} AS BIGINT) END"
    return f"CAST({cell} AS BIGINT)" if form == "int" else f"TRY_CAST({shown(cell, form)} AS BIGINT)"


def number(cell: str, form: Shape) -> str:
    """The number in the cell as DOUBLE; NULL if there is none."""
    if form in {"int", "huge", "float", "bool"}:
        return f"CAST({cell} AS DOUBLE)"
    return f"TRY_CAST({shown(cell, form)} AS DOUBLE)"


def integer(cell: str, form: Shape) -> str:
    """The integer in the cell as BIGINT; NULL if there is none."""
    if form == "int":
        return f"CAST({cell} AS BIGINT)"
    if form == "float":
        real = f"CAST({cell} AS DOUBLE)"
        return f"CASE WHEN {real} = floor({real}) AND abs({real}) {_FITS} THEN CAST({cell} AS BIGINT) END"
    text = f"trim({shown(cell, form)})"
    # The pattern is needed: a cast alone would round '1.5' to 2.
    return f"CASE WHEN regexp_full_match({text}, '[-+]?[0-9]+([.]0*)?') THEN TRY_CAST({text} AS BIGINT) END"


def flag(cell: str, form: Shape) -> str:
    """The truth value in the cell as BOOLEAN; NULL if there is none."""
    if form == "bool":
        return cell
    text = f"lower(trim({shown(cell, form)}))"
    return f"CASE WHEN {text} IN {_TRUE} THEN true WHEN {text} IN {_FALSE} THEN false END"
