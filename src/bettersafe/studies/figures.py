"""Write the figures, tables and summary of a study to files."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

from bettersafe._system.files import whole_file
from bettersafe.errors import ParameterError, RunError
from bettersafe.studies.catalogue import CATALOGUE
from bettersafe.studies.drawing import NO_MATPLOTLIB, has_matplotlib, rendered
from bettersafe.studies.summary import finished
from bettersafe.studies.sweep import read_description, read_rows


def write_figures(folder: str | Path, out: str | Path | None = None) -> list[Path]:
    """Write figures, tables and summary of the study in ``folder``, finished or not.

    An unfinished sweep is shown up to its complete repetitions, with a note in every figure and table. Without
    Matplotlib, only the tables and the summary are written, with a warning.

    Args:
        folder: Folder of the sweep.
        out: Output folder; default ``folder/figures``.

    Returns:
        The files written: every figure as PNG and SVG, `table.md` and `summary.csv`.

    Examples:
        >>> from dataclasses import replace
        >>> from bettersafe.studies import make_study, run_sweep, write_figures
        >>> study = make_study("garnet/bopt", worlds=1)
        >>> small = replace(study, jobs=study.jobs[:1])
        >>> _ = run_sweep(small, "sweep", workers=1)
        >>> [file.name for file in write_figures("sweep")]
        ['garnet.png', 'garnet.svg', 'table.md', 'summary.csv']
    """
    from pyarrow import csv

    document = read_description(folder)
    if document["id"] not in CATALOGUE:
        raise ParameterError(f"the study {document['id']!r} is not in the catalogue; it has {', '.join(CATALOGUE)}.")
    entry = CATALOGUE[document["id"]]
    rows, done, total = finished(read_rows(folder, partial=True), document["jobs"], by=entry.repeated)
    drawn = has_matplotlib()
    if not drawn:
        warnings.warn(f"only tables are written: {NO_MATPLOTLIB}", stacklevel=2)
    note = f"unfinished sweep: {done} of {total} {entry.unit}" if done < total else ""
    sentence = f"This is an {note}." if note else ""
    figures = entry.draw(rows, note) if drawn else {}
    page, summary = entry.tables(rows, sentence), entry.summary(rows)
    place = Path(folder) / "figures" if out is None else Path(out)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{place} can't be written: {error.strerror}. Choose another place.") from None
    files = {f"{name}.{kind}": rendered(figure, kind) for name, figure in figures.items() for kind in ("png", "svg")}
    sink = io.BytesIO()
    csv.write_csv(summary, sink)
    return [
        _write(place / name, content)
        for name, content in (files | {"table.md": page.encode(), "summary.csv": sink.getvalue()}).items()
    ]


def _write(target: Path, content: bytes) -> Path:
    with whole_file(target) as partial:
        partial.write_bytes(content)
    return target
