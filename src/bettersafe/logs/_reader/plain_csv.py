"""CSV in which every cell is plain, as typed Arrow columns, block by block: the quick way to read text.

What a cell means is said by ``cells.py``. Here only cells are read that mean the same to Arrow; at any other (a quote, a label
'007', a line that is too short or ends unlike the others) a ValueError is raised, and the log is read by SQL.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, BinaryIO

from bettersafe._system.workers import cores

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from bettersafe.logs._reader.cells import Kind
    from bettersafe.logs._reader.files import File


BLOCK = 1 << 20
"""Bytes that are read at a time."""

VOCABULARY = {"episode": "episode", "state": "state", "next_state": "state", "action": "action"}
"""Role of a label -> the vocabulary that it is of."""

FLAGS = ("terminated", "truncated")
TRUTH = {"true": True, "1": True, "false": False, "0": False}


# What readers of text differ about: Arrow takes 0x10 for a number, and drops tabs.
NOT_PLAIN = (b'"', b"\0", b"0x", b"0X", b"\t")

NAME = r"^[\p{L}_]"
"""How a label begins that can't be a number; but for these:"""

NUMBERS_IN_WORDS = ("nan", "inf", "infinity")


def plain_batches(
    file: File, names: Mapping[str, str], kinds: dict[str, Kind]
) -> Iterator[tuple[dict[str, pa.Array], int]]:
    """The cells of every block of a CSV file, and how many of its bytes have been read.

    Args:
        file: The file.
        names: Role -> column.
        kinds: Vocabulary -> what its labels are; learned from the first block, and kept for files that follow.

    Yields:
        Role -> labels (integers, or texts in a dictionary), steps (integers), flags or numbers; with nulls where cells are empty.

    Raises:
        ValueError: Something is not plain. pyarrow's own errors are ValueErrors too.
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
    """A file of plain text that is read from its beginning to its end; a ValueError where it is something else."""

    closed = False

    def __init__(self, stream: BinaryIO, delimiter: bytes) -> None:
        self.done = 0
        self._stream = stream
        self._marks = [mark for mark in NOT_PLAIN if mark != delimiter]
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._last = b""
        self._returns: bool | None = None  # whether lines end in a carriage return and a line feed; all must end alike

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
    """Labels as integers if all are '7' or '7.0', as the texts that they are if none of them could be a number."""
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
