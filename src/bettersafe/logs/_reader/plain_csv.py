"""Fast reading of plain CSV as typed Arrow columns, block by block.

``cells.py`` defines how cells are read. This module reads only cells that Arrow reads in the same way; at any other (a quote, a
label '007', a line that is too short or has another line ending) it raises a ValueError, and the log is read by SQL.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, BinaryIO

from bettersafe._system.workers import cores
from bettersafe.logs.roles import FLAGS, VOCABULARY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from bettersafe.logs._reader.cells import Kind
    from bettersafe.logs._reader.files import File


BLOCK = 1 << 20
"""Bytes read at a time."""

TRUTH = {"true": True, "1": True, "false": False, "0": False}


# Text that Arrow and DuckDB read differently: Arrow takes 0x10 for a number, and drops tabs.
NOT_PLAIN = (b'"', b"\0", b"0x", b"0X", b"\t")

NAME = r"^[\p{L}_]"
"""Beginning of a label that can't be a number, except for `NUMBERS_IN_WORDS`."""

NUMBERS_IN_WORDS = ("nan", "inf", "infinity")


def plain_batches(
    file: File, names: Mapping[str, str], kinds: dict[str, Kind]
) -> Iterator[tuple[dict[str, pa.Array], int]]:
    """Cells of every block of a CSV file, and the number of bytes read so far.

    Args:
        file: CSV file.
        names: Role -> column.
        kinds: Vocabulary -> kind of its labels; set by the first block, and kept for later files.

    Yields:
        Role -> labels (integers, or texts in a dictionary), steps (integers), flags or numbers; empty cells are null.

    Raises:
        ValueError: A cell or line is not plain. pyarrow's own errors are ValueErrors too.
    """
    import pyarrow as pa
    from pyarrow import csv

    places = {role: file.columns[name][0] for role, name in names.items()}
    texts = pa.dictionary(pa.int32(), pa.string())
    of_role = dict.fromkeys((*VOCABULARY, *FLAGS), texts) | {"step": pa.int64()}
    with file.path.open("rb") as stream:
        watched = _Watched(stream, file.delimiter.encode())
        reader = csv.open_csv(
            watched,
            read_options=csv.ReadOptions(
                column_names=[f"c{i}" for i in range(file.width)],
                skip_rows=1,
                block_size=BLOCK,
                use_threads=cores() > 1,
            ),
            parse_options=csv.ParseOptions(delimiter=file.delimiter, quote_char=False, double_quote=False),
            convert_options=csv.ConvertOptions(
                column_types={place: of_role.get(role, pa.float64()) for role, place in places.items()},
                include_columns=list(places.values()),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
        for batch in reader:
            cells = {role: batch.column(place) for role, place in places.items()}
            for role, column in cells.items():
                if role in VOCABULARY:
                    cells[role] = _labels(column, VOCABULARY[role], kinds)
                elif role in FLAGS:
                    truths = [TRUTH.get(text.lower()) for text in column.dictionary.to_pylist()]
                    cells[role] = pa.array(truths, pa.bool_()).take(column.indices)
            yield cells, watched.done


class _Watched:
    """Stream of a file, read from beginning to end. Raises ValueError if its text is not plain."""

    closed = False

    def __init__(self, stream: BinaryIO, delimiter: bytes) -> None:
        self.done = 0
        self._stream = stream
        self._marks = [mark for mark in NOT_PLAIN if mark != delimiter]
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._last = b""
        self._returns: bool | None = None  # whether lines end in CR LF; all must end alike

    def read(self, size: int = -1) -> bytes:
        block = self._stream.read(size)
        if not self.done and block.removeprefix(codecs.BOM_UTF8)[:1].isspace():
            raise ValueError("the first line is blank")
        self.done += len(block)
        self._decoder.decode(block, final=not block)
        text = self._last + block
        self._last = block[-1:]
        lines, pairs = block.count(b"\n"), text.count(b"\r\n")
        returns = text.count(b"\r") - (text.endswith(b"\r") and bool(block))
        if lines and self._returns is None:
            self._returns = pairs > 0
        if (
            any(mark in text for mark in self._marks)
            or returns != pairs
            or (pairs != lines if self._returns else pairs)
        ):
            raise ValueError("the text is not plain")
        return block

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


def _labels(column: pa.DictionaryArray, vocabulary: str, kinds: dict[str, Kind]) -> pa.Array:
    """Labels as integers if all are like '7' or '7.0', as text if none can be a number. Raises ValueError otherwise."""
    import pyarrow as pa
    from pyarrow import compute

    texts = column.dictionary
    if len(texts):
        names = compute.match_substring_regex(texts, NAME)
        kind: Kind = "text" if names[0].as_py() else "integer"
        if kinds.setdefault(vocabulary, kind) != kind:
            raise ValueError("texts and numbers")
        if kind == "text":
            words = compute.is_in(compute.utf8_lower(texts), pa.array(NUMBERS_IN_WORDS))
            if not compute.all(names).as_py() or compute.any(words).as_py():
                raise ValueError("a label may be a number")
    if kinds.get(vocabulary) == "text":
        return column
    short = compute.if_else(compute.ends_with(texts, ".0"), compute.utf8_slice_codeunits(texts, 0, -2), texts)
    whole = short.cast(pa.int64())
    if not whole.cast(pa.string()).equals(short):
        raise ValueError("not all labels are plain integers")
    return whole.take(column.indices)
