"""Plans over rows that arrive: whatever the batches, the order and the punctuations, and saved and restored on the way,
the rows are those of the reference."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pyarrow as pa
import pytest

import tsql
from tests.temporal.arrivals import HOW, Message, Punctuation, arrivals, interleaved
from tests.temporal.constructs import Construct, tables
from tests.temporal.data import to_rows
from tests.temporal.reference.rows import Rows
from tests.temporal.test_constructs import CONSTRUCTS, REARRANGED, assert_answers, expected_of
from tsql.backends import Run
from tsql.backends.live.query import LiveQuery
from tsql.planner.physical.operators.scan import Scan
from tsql.planner.physical.planfile import parse_plan
from tsql.planner.physical.step import PhysicalPlan

TIMES = {"events": "ts", "others": "ts", "periods": "vs", "more": "vs"}
"""The column that punctuations of a table are about. Other tables are read as they are."""


def plan_of(session: tsql.Session, sql: str) -> PhysicalPlan:
    return parse_plan(session.sql(sql).plan(), session.catalog)


def live_scans(plan: PhysicalPlan) -> dict[str, str]:
    """The scans whose rows arrive, with the names of their tables."""
    return {s.name: s.table for s in plan.root.walk() if isinstance(s, Scan) and s.table in TIMES}


class Arriving:
    """A live query and the messages that it has yet to get."""

    def __init__(self, plan: PhysicalPlan, data: Mapping[str, pa.Table], how: str, seed: int):
        self.plan, self.scans = plan, live_scans(plan)
        self.live = {name: TIMES[table] for name, table in self.scans.items()}
        self.schemas = {name: data[table].schema for name, table in self.scans.items()}
        streams = [_arrivals(data[table], TIMES[table], how, seed) for table in self.scans.values()]
        self.messages = list(interleaved(streams, seed))
        self.query = LiveQuery(plan, self.live, Run())
        self.found: list[pa.RecordBatch] = []
        self.most = 0

    def run(self, restore_at: int | None = None, shards: int = 3) -> Rows:
        """All messages; before one of them the state is saved, and another query goes on from it."""
        names = list(self.scans)
        for number, (stream, message) in enumerate(self.messages):
            if number == restore_at:
                state = self.query.state()
                self.query = LiveQuery(self.plan, self.live, Run(), shards=shards)
                self.query.restore(state)
            self.take(names[stream], message)
            self.most = max(self.most, self.query.rows_held())
        if not names:
            self.found += self.query._advance({})
        return to_rows(pa.Table.from_batches(self.found, schema=self.plan.schema))

    def take(self, scan: str, message: Message) -> None:
        if isinstance(message, Punctuation):
            self.found += self.query.punctuate(scan, message.time_us)
        else:
            self.found += self.query.consume(scan, pa.Table.from_pylist(message, schema=self.schemas[scan]))


def _arrivals(table: pa.Table, time: str, how: str, seed: int) -> list[Message]:
    return arrivals(to_rows(table), time, how, seed)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("construct", CONSTRUCTS, ids=lambda construct: construct.name)
@pytest.mark.in_turn(3)
def test_arrival_does_not_matter(construct: Construct, how: str) -> None:
    """Punctuations after every row, sometimes, or only at the end; restored in the middle at one, two or three
    shards."""
    seed = CONSTRUCTS.index(construct)
    shape = REARRANGED[(seed + HOW.index(how)) % len(REARRANGED)]
    data = tables(shape, seed=5, rows=16)
    with tsql.connect(threads=2) as session:
        for name, table in data.items():
            session.register(name, table)
        for statement in construct.setup:
            session.sql(statement)
        plan = plan_of(session, construct.sql)
        arriving = Arriving(plan, data, how, seed)
        restore_at = random.Random(seed).randrange(1, max(2, len(arriving.messages)))
        assert_answers(construct, arriving.run(restore_at, shards=1 + seed % 3), expected_of(construct, data))
