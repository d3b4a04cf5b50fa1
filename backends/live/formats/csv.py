"""Format `csv`: a message, or a line, is a row with the fields of all columns in their order, without a header.

pyarrow reads a block at once. What it refuses is read as text and converted like values of CSV files
(`backends.io.csv.values`). pyarrow takes the lines after an open quote for a part of the field: a mark behind the block
and a count of the rows show it, and then the lines are looked through for the one with the quote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.csv

from tsql.backends.io import options as opt
from tsql.backends.io.csv.values import FALSE_WORDS, TRUE_WORDS, convert_column, shown
from tsql.backends.io.text import ISO
from tsql.backends.live.formats.format import BadMessages, Where, refuse_types
from tsql.backends.live.sources.columns import joined
from tsql.backends.live.sources.notices import Notices
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.process.arrow_compute import pc

HINT = "ignore_errors = true leaves out what cannot be read"


class CsvFormat:
    """Decodes rows of CSV. With `quoted_is_null` false, a quoted field is never NULL; with `breaks` true, quoted fields
    may have line breaks, and nothing is checked: PostgreSQL writes such rows."""

    def __init__(
        self,
        options: Mapping[str, Any],
        schema: Schema,
        notices: Notices,
        quoted_is_null: bool = True,
        breaks: bool = False,
    ) -> None:
        refuse_types(schema, "csv", ("INTERVAL",), "declare the column as VARCHAR and cast it")
        self.schema, self._notices, self._breaks = schema, notices, breaks
        self._arrow = schema.to_arrow()
        self._bad = BadMessages(options, notices)
        delimiter, quote = opt.character(options, "delim") or ",", opt.character(options, "quote") or '"'
        nulls = ["", *(opt.texts(options, "nullstr") or [])]
        opt.check_marks(delimiter, quote, quote, nulls=nulls)
        self._mark = delimiter * len(schema)
        """A row with one field too many."""
        self._names = [f"c{i}" for i in range(len(schema))]
        self._parse = partial(
            pa.csv.ParseOptions, delimiter=delimiter, quote_char=quote, double_quote=True, newlines_in_values=breaks
        )
        self._convert = partial(
            pa.csv.ConvertOptions,
            null_values=nulls,
            strings_can_be_null=True,
            quoted_strings_can_be_null=quoted_is_null,
            true_values=TRUE_WORDS,
            false_values=FALSE_WORDS,
        )
        self._types = dict(zip(self._names, self._arrow.types, strict=True))
        self._texts = dict.fromkeys(self._names, pa.binary())

    def decode(self, messages: Sequence[bytes], where: Where) -> pa.RecordBatch:
        block = b"\n".join(messages)
        if block.count(b"\n") == len(messages) - 1 and not _has_blank_lines(block) and not block.endswith(b"\n"):
            return self._decoded(block, len(messages), where)
        messages = [message.rstrip(b"\r\n") for message in messages]
        numbers = []
        for number, message in enumerate(messages):
            if not message or b"\n" in message:
                what = "has a line break" if message else "is empty"
                self._bad.meet(SourceError(f"{where(number)}: the message {what}", hint=HINT))
            else:
                numbers.append(number)
        if len(numbers) < len(messages):
            messages = [messages[number] for number in numbers]
        return self._decoded(b"\n".join(messages), len(messages), lambda i: where(numbers[i]))

    def decode_lines(self, block: bytes, where: Where) -> pa.RecordBatch:
        if self._breaks:
            return self._decoded(block, None, where)
        lines = block.count(b"\n") + (not block.endswith(b"\n"))
        if not _has_blank_lines(block):
            return self._decoded(block, lines, where)
        numbers = [number for number, line in enumerate(block.split(b"\n")) if line.strip(b"\r")]
        return self._decoded(block, len(numbers), lambda i: where(numbers[i]))

    def _decoded(self, block: bytes, rows: int | None, where: Where) -> pa.RecordBatch:
        """The rows of a block, of which there should be `rows`."""
        if not rows and not block:
            return joined([], self.schema)
        try:
            table, wrong = self._read(block, self._types, where)
        except pa.ArrowInvalid:
            table, wrong = self._read(block, self._texts, where)
        if rows is not None and wrong is not None and table.num_rows + len(wrong) != rows:
            wrong = None
        if wrong is None:
            return self._without_open_quotes(block, where)
        for number, text in wrong:
            self._bad.meet(SourceError(f"{where(number)}: {text}", hint=HINT))
        (batch,) = table.combine_chunks().to_batches() or [joined([], self.schema)]
        if table.schema.types != self._arrow.types:
            batch = self._converted(batch, where)
        return pa.RecordBatch.from_arrays(batch.columns, schema=self._arrow)

    def _read(
        self, block: bytes, types: Mapping[str, pa.DataType], where: Where
    ) -> tuple[pa.Table, list[tuple[int, str]] | None]:
        """The rows of a block, and those with a wrong number of fields; None if a quote is open at its end."""
        wrong: list[tuple[int, str]] = []
        ended = self._breaks

        def invalid(row: pa.csv.InvalidRow) -> str:
            nonlocal ended
            if row.text == self._mark:
                ended = True
            else:
                wrong.append((row.number - 1, f"expected {row.expected_columns} fields, found {row.actual_columns}"))
            return "skip"

        if not self._breaks:
            block = b"".join([block, b"" if block.endswith(b"\n") else b"\n", self._mark.encode(), b"\n"])
        table = pa.csv.read_csv(
            pa.BufferReader(block),
            pa.csv.ReadOptions(
                use_threads=False, column_names=self._names, block_size=max(1, min(len(block), 2**31 - 1))
            ),
            self._parse(invalid_row_handler=invalid),
            self._convert(column_types=types),
        )
        return table, wrong if ended else None

    def _without_open_quotes(self, block: bytes, where: Where) -> pa.RecordBatch:
        """The rows of a block in which some quote is never closed: it is cut in two until that line is alone."""
        lines = block.split(b"\n")
        numbers = [number for number, line in enumerate(lines) if line.strip(b"\r")]
        if len(numbers) == 1:
            error = f"{where(0)}: a quote is never closed"
            self._bad.meet(SourceError(error, hint=HINT))
            return joined([], self.schema)
        half = len(numbers) // 2
        parts = []
        for chosen, start in ((numbers[:half], 0), (numbers[half:], half)):
            part = b"\n".join(lines[number] for number in chosen)
            parts.append(self._decoded(part, len(chosen), partial(_behind, where, start)))
        return joined(parts, self.schema)

    def _converted(self, batch: pa.RecordBatch, where: Where) -> pa.RecordBatch:
        """Text as values. Rows with a bad value are errors or are left out."""
        arrays, failed = [], None
        for field, texts in zip(self.schema, batch.columns, strict=True):
            lost = partial(self._notices.tell, f"digits below microseconds of column {field.name} were dropped")
            array, wrong = self._column(texts, field.type, lost)
            if wrong is not None:
                first = pc.index(wrong, True).as_py()
                text = texts[first].as_py().decode("utf-8", "replace")
                error = f"{where(first)}: column {field.name}: could not convert '{shown(text)}' to {field.type}"
                self._bad.meet(SourceError(error, hint=HINT), 0)
                failed = wrong if failed is None else pc.or_(failed, wrong)
            arrays.append(array)
        found = pa.RecordBatch.from_arrays(arrays, schema=self._arrow)
        if failed is None:
            return found
        self._bad.meet(SourceError("rows with values that cannot be read"), pc.sum(failed).as_py())
        return found.filter(pc.invert(failed))

    @staticmethod
    def _column(texts: pa.Array, kind: Any, lost: Any) -> tuple[pa.Array, pa.Array | None]:
        if kind.name == "BLOB":
            return texts, None
        try:
            # Text that is not UTF-8 is refused as a whole, and then value by value.
            return convert_column(texts.cast(pa.string()), kind, ISO, lost)
        except pa.ArrowInvalid:
            return convert_column(texts, kind, ISO, lost)


def _behind(where: Where, start: int, number: int) -> str:
    """The name of a line by its number behind another one."""
    return where(start + number)


def _has_blank_lines(block: bytes) -> bool:
    return not block or block.startswith((b"\n", b"\r")) or b"\n\n" in block or b"\n\r" in block
