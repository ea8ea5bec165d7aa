"""Files of off-policy estimates: one row per estimator and objective, in the user's own sign."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bettersafe._system.files import whole_file
from bettersafe.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA = "evaluation/1"


def write_evaluation(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write estimates (`evaluate.evaluation_rows`) as Parquet, or CSV if the name ends so; under a temporary name first."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    target = Path(path)
    if target.suffix.lower() not in (".parquet", ".csv"):
        raise RunError(f"estimates are written as .parquet or .csv; got {target.name}.")
    table = pa.Table.from_pylist(list(rows))
    with whole_file(target) as partial:
        if target.suffix.lower() == ".csv":
            pa_csv.write_csv(table, partial)
        else:
            pq.write_table(table.replace_schema_metadata({"bettersafe.schema": SCHEMA}), partial)


def read_evaluation(path: str | Path) -> tuple[dict[str, Any], ...]:
    """Read what `write_evaluation` wrote as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise RunError(f"{path} can't be read: {error}") from None
    schema = (table.schema.metadata or {}).get(b"bettersafe.schema", b"none").decode()
    if schema != SCHEMA:
        raise RunError(f"{path} has schema {schema!r}; this version of bettersafe reads {SCHEMA!r}.")
    return tuple(table.to_pylist())
