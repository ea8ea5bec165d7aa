"""Files of off-policy estimates: one row per estimator and objective, with the sign of the log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bettersafe._system.files import whole_file
from bettersafe.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bettersafe.evaluation.evaluate import EstimateRow

SCHEMA = "evaluation/2"


def write_evaluation(path: str | Path, rows: Sequence[EstimateRow]) -> None:
    """Write estimates (`evaluate.comparison_rows`) as Parquet, or as CSV if the name ends in .csv.

    The file is written under a temporary name and then renamed.
    """
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    target = Path(path)
    if target.suffix.lower() not in (".parquet", ".csv"):
        raise RunError(f"a file of estimates must end in .parquet or .csv; got {target.name}.")
    try:
        table = pa.Table.from_pylist(list(rows))
    except (pa.ArrowException, TypeError, AttributeError) as error:
        raise RunError(f"the estimates can't be written as a table: {error}.") from None
    with whole_file(target) as partial:
        if target.suffix.lower() == ".csv":
            pa_csv.write_csv(table, partial)
        else:
            pq.write_table(table.replace_schema_metadata({"bettersafe.schema": SCHEMA}), partial)


def read_evaluation(path: str | Path) -> tuple[EstimateRow, ...]:
    """Read a Parquet file of `write_evaluation`."""
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
