"""A query over tables that come in batches, through `LiveQuery.advance`, beside the same query over the same Arrow
batches at once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

import tsql
from bench.live_cases.queries import TIMES, Case
from tsql.backends import Run
from tsql.backends.live.query import LiveQuery
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.planfile import parse_plan
from tsql.tpch.measure import difference

FAR = 2**62
"""A time that no row reaches."""

Pieces = list[tuple[dict[str, pa.RecordBatch], int]]
"""Batches by table, and the time up to which everything has come with them."""


@dataclass(frozen=True)
class Spent:
    """The time of one run: by the clock, and of the processor, which other processes on the machine change less."""

    seconds: float
    cpu_seconds: float

    def of(self, other: Spent) -> tuple[float, float]:
        """How many times longer the other one took, by both."""
        return other.seconds / self.seconds, other.cpu_seconds / max(self.cpu_seconds, 1e-9)


class Watch:
    """Measures what runs inside `with`."""

    def __enter__(self) -> Watch:
        self._begun = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.spent = Spent(time.perf_counter() - self._begun[0], time.process_time() - self._begun[1])


def pieces(tables: Mapping[str, pa.Table], times: Mapping[str, str], rows: int) -> Pieces:
    """The rows of all tables that arrive, each in the order of time. A piece has `rows` rows of the largest one, and as
    large a share of the others; with it comes the promise that nothing is left before the first row to come."""
    moving = {name: table.combine_chunks() for name, table in tables.items() if name in times}
    count = -(-max(table.num_rows for table in moving.values()) // rows)
    found: Pieces = []
    for number in range(count):
        batches, left = {}, []
        for name, table in moving.items():
            first, end = (table.num_rows * place // count for place in (number, number + 1))
            if first < end:
                (batches[name],) = table.slice(first, end - first).to_batches()
            if end < table.num_rows:
                left.append(table[times[name]][end].value)
        found.append((batches, min(left, default=FAR)))
    return found


class Feeding:
    """A query, ready to run both ways in one session."""

    def __init__(self, sql: str, tables: Mapping[str, pa.Table], times: Mapping[str, str] = TIMES, threads: int = 2):
        self.tables, self.times, self.threads = tables, times, threads
        self.session = tsql.connect(threads=threads)
        for name, table in tables.items():
            self.session.register(name, table)
        self.relation = self.session.sql(sql)
        self.plan = parse_plan(self.relation.plan(), self.session.catalog)
        self.scans = {
            scan.name: scan.table for scan in self.plan.root.walk() if isinstance(scan, Scan) and scan.table in times
        }

    def query(self) -> LiveQuery:
        """The query before any row has come."""
        live = {scan: self.times[table] for scan, table in self.scans.items()}
        return LiveQuery(self.plan, live, Run(settings=self.session.settings), shards=self.threads)

    def bounded(self) -> pa.Table:
        return self.relation.arrow()

    def live(self, given: Pieces, query: LiveQuery | None = None) -> pa.Table:
        """The result of all pieces, with a promise after each."""
        query = query or self.query()
        try:
            found = [batch for one in given for batch in self.advance(query, *one)]
            found += query.advance({}, dict.fromkeys(self.scans))
        finally:
            query.close()
        return pa.Table.from_batches(found, schema=self.plan.schema)

    def advance(self, query: LiveQuery, batches: dict[str, pa.RecordBatch], to: int) -> list[pa.RecordBatch]:
        rows = {scan: query.arrived(scan, batches[name]) for scan, name in self.scans.items() if name in batches}
        return query.advance(rows, dict.fromkeys(self.scans, to))

    def close(self) -> None:
        self.session.close()


def answers(case: Case, feeding: Feeding, given: Pieces) -> Iterator[str]:
    """What is wrong with the answers: the bounded one beside DuckDB's, and the live one beside it."""
    bounded = feeding.bounded()
    if case.for_duckdb:
        import duckdb

        with duckdb.connect() as connection:
            for name, table in feeding.tables.items():
                connection.register(name, table)
            theirs = connection.sql(case.for_duckdb).to_arrow_table()
        why = difference(theirs, bounded, ordered=False)
        if why is not None:
            yield f"{case.name}: DuckDB and the bounded query: {why}"
    why = difference(bounded, feeding.live(given), ordered=False)
    if why is not None:
        yield f"{case.name}: the bounded query and the live one: {why}"


@dataclass(frozen=True)
class Compared:
    """The best run of each way."""

    rows: int
    bounded: Spent
    live: Spent

    @property
    def events_per_second(self) -> float:
        return self.rows / self.live.seconds

    @property
    def ratio(self) -> float:
        return self.live.of(self.bounded)[0]

    @property
    def cpu_ratio(self) -> float:
        return self.live.of(self.bounded)[1]


def compare(feeding: Feeding, given: Pieces, runs: int) -> Compared:
    """Both ways in turns; the best of each."""
    bounded, live = [], []
    for _ in range(runs):
        with Watch() as watch:
            feeding.bounded()
        bounded.append(watch.spent)
        query = feeding.query()
        with Watch() as watch:
            feeding.live(given, query)
        live.append(watch.spent)
    return Compared(sum(b.num_rows for batches, _ in given for b in batches.values()), best(bounded), best(live))


def best(runs: list[Spent]) -> Spent:
    return Spent(min(run.seconds for run in runs), min(run.cpu_seconds for run in runs))
