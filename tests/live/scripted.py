"""A stream whose rows come as a test says, from several partitions, and again from any offset."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

import tsql
from tsql.backends.live.jobs.streams import StreamSource
from tsql.backends.live.sources.reader import Arrival, Offset
from tsql.catalog.external import External
from tsql.kernels.expr.schema import Schema
from tsql.planner.bind.binder import parse_expression


@dataclass(frozen=True)
class Piece:
    """Rows that come together, and what is known behind them."""

    rows: pa.Table
    promise: int | None = None


Script = Mapping[str, Sequence[Piece]]
"""Pieces of each partition."""


class ScriptedReader:
    """Gives one piece at a time, of a partition that the seed chooses. ends: the stream ends behind the last piece; if
    not, it goes on and nothing comes. held: no piece comes before this is set. greets: whether partitions are there
    before their first rows are. `given` has what it gave, with the offsets behind it."""

    replays = True

    def __init__(
        self,
        script: Script,
        schema: Schema,
        seed: int,
        ends: bool,
        held: threading.Event | None = None,
        greets: bool = True,
    ):
        self.greets, self.given = greets, list[tuple[str, int, Piece]]()
        self.script, self.schema, self.ends, self.held = script, schema, ends, held
        self.choose = random.Random(seed)
        self.places: dict[str, int] = {}
        self.acknowledged: list[dict[str, Offset]] = []
        self.closed = False

    def open(self, offsets: Mapping[str, Offset]) -> None:
        self.places = {name: offsets.get(name, 0) for name in self.script}
        self.greet = self.greets

    def poll(self, rows: int, seconds: float) -> list[Arrival] | None:
        if self.greet:
            self.greet = False
            return [Arrival(name, self._rows(pieces[:0]), self.places[name]) for name, pieces in self.script.items()]
        left = [name for name, place in self.places.items() if place < len(self.script[name])]
        if not left:
            if not self.ends:
                time.sleep(min(seconds, 0.005))
            return None if self.ends else []
        if self.held is not None and not self.held.is_set():
            time.sleep(min(seconds, 0.005))
            return []
        name = self.choose.choice(left)
        piece = self.script[name][self.places[name]]
        self.places[name] += 1
        self.given.append((name, self.places[name], piece))
        return [Arrival(name, self._rows([piece]), self.places[name], piece.promise)]

    def _rows(self, pieces: Sequence[Piece]) -> pa.RecordBatch:
        schema = self.schema.to_arrow()
        tables = [piece.rows.select(schema.names).cast(schema) for piece in pieces]
        whole = pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()
        batches = whole.to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)

    def behind(self) -> int | None:
        return sum(len(pieces) - self.places.get(name, 0) for name, pieces in self.script.items())

    def acknowledge(self, offsets: Mapping[str, Offset]) -> None:
        self.acknowledged.append(dict(offsets))

    def close(self) -> None:
        self.closed = True


def scripted(
    session: tsql.Session,
    name: str,
    script: Script,
    schema: pa.Schema,
    time: str | None,
    *,
    seed: int = 0,
    ends: bool = True,
    watermark: str | None = None,
    held: threading.Event | None = None,
    greets: bool = True,
    period: tuple[str, str] | None = None,
    **lateness: object,
) -> list[ScriptedReader]:
    """Make a stream of a script. Returns the list to which each reader that a job opens is added."""
    from tsql.backends.io.watermark import Watermark

    columns = Schema.from_arrow(schema)
    text = watermark or time
    mark = None
    if time is not None and text is not None:
        mark = Watermark(time, text, parse_expression(text, columns), **lateness)  # type: ignore[arg-type]
    readers: list[ScriptedReader] = []

    def open_reader(wanted: Schema) -> ScriptedReader:
        readers.append(ScriptedReader(script, wanted, seed + len(readers), ends, held, greets))
        return readers[-1]

    source = StreamSource(name, columns, mark, open_reader, ends, f"scripted {name}")
    session.catalog.add(name, External("stream", source.schema, None, source, period, mark, True))
    return readers


def cut(table: pa.Table, seed: int, most: int = 7) -> list[Piece]:
    """A table in pieces of a few rows."""
    choose, pieces, start = random.Random(seed), [], 0
    while start < table.num_rows:
        size = choose.randint(1, most)
        pieces.append(Piece(table.slice(start, size)))
        start += size
    return pieces
