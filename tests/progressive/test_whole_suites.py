"""The last snapshot of whole suites is the plain result: TPC-H, the queries of papers about streams, and each temporal
construct, under several seeds, threads and shards, with rests between snapshots. The corpus has a configuration of its
own (`tests/slt/engines.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.temporal.asking import text_of
from tests.temporal.constructs import Construct, tables
from tests.temporal.data import assert_same_rows, selected, to_rows
from tests.temporal.test_constructs import CONSTRUCTS, assert_answers, expected_of
from tests.temporal.test_workloads import REFERENCES
from tests.temporal.workloads import clicks, packets
from tsql.tpch import data
from tsql.tpch.check import Oracle
from tsql.tpch.queries import NUMBERS, query

SCALE = 0.01
GROUP_ROWS = 2_000
SETTINGS: tuple[dict[str, Any], ...] = ({"threads": 1}, {"threads": 2}, {"threads": 2, "shards": 3})
SOURCES = ("blocks", "parquet")
WAYS = [(source, place) for source in SOURCES for place in range(len(SETTINGS))]
"""What the tables are in, and which settings."""
SHAPES_AND_SETTINGS = list(product(("unsorted", "few_times", "null_times"), range(len(SETTINGS))))
REST = "SELECT count(*) AS n, sum(i) AS s FROM range(1000) AS t(i)"


def finished(db: tsql.Session, sql: str, seed: int) -> pa.Table:
    """The last snapshot of a query. Before the next one is asked for, the session runs another query, and one of the
    same text, which stops at its first snapshot."""
    text = sql.rstrip().rstrip(";")
    progressive = f"{text}\nPROGRESSIVE EVERY 20 PERCENT SEED {seed}"
    with db.sql(progressive).snapshots() as snapshots:
        for snap in snapshots:
            if snap.is_final:
                break
            assert 0 < snap.progress < 1
            assert db.sql(REST).fetchall() == [(1000, 499_500)]
            with db.sql(progressive).snapshots() as other:
                assert next(other).rows_read > 0
    last = snapshots.last
    assert last is not None and last.is_final and last.progress == 1
    return last.table


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    made = Oracle(SCALE, data.tables(SCALE))
    yield made
    made.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tables of TPC-H with row groups of few rows."""
    folder = tmp_path_factory.mktemp("cut")
    found = {}
    for name, path in data.tables(SCALE).items():
        found[name] = folder / f"{name}.parquet"
        pq.write_table(pq.read_table(path), found[name], row_group_size=GROUP_ROWS)
    return found


@pytest.fixture(scope="module")
def sessions(files: dict[str, Path]) -> Iterator[dict[tuple[str, int], tsql.Session]]:
    """A session for each way, made when it is first needed."""
    with ExitStack() as stack:

        class Made(dict[tuple[str, int], tsql.Session]):
            def __missing__(self, way: tuple[str, int]) -> tsql.Session:
                source, place = way
                db = self[way] = stack.enter_context(tsql.connect(**SETTINGS[place]))
                for name, path in files.items():
                    if source == "parquet":
                        db.register(name, db.read_parquet(path))
                    else:
                        db.execute(f"CREATE TABLE {name} AS SELECT * FROM '{path}'")
                return db

        yield Made()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way[0]}-{way[1]}")
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.in_turn(6)
def test_tpch(number: int, way: tuple[str, int], oracle: Oracle, sessions: dict[tuple[str, int], tsql.Session]) -> None:
    db = sessions[way]
    outcome = oracle.compare("tsql", number, lambda: finished(db, query(number, SCALE), seed=number))
    assert outcome.right, str(outcome)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way[0]}-{way[1]}")
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.in_turn(6)
def test_tpch_by_keys(
    number: int,
    way: tuple[str, int],
    oracle: Oracle,
    sessions: dict[tuple[str, int], tsql.Session],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All joins count as slow ones, so they make progress by their keys."""
    monkeypatch.setattr("tsql.planner.choose.large_joins.WAITED_MS", 0.0)
    monkeypatch.setattr("tsql.planner.choose.large_joins.BUILT_SHARE", 0.0)
    db = sessions[way]
    outcome = oracle.compare("tsql", number, lambda: finished(db, query(number, SCALE), seed=100 + number))
    assert outcome.right, str(outcome)


def filled(db: tsql.Session, given: dict[str, pa.Table], blocks: bool) -> None:
    for name, table in given.items():
        db.register(f"{name}_arrow" if blocks else name, table)
        if blocks:
            db.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_arrow")


@pytest.mark.parametrize("settings", range(len(SETTINGS)))
@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.in_turn(3)
def test_queries_of_papers(name: str, settings: int) -> None:
    given = {**packets(settings), "clicks": clicks(settings)}
    with tsql.connect(**SETTINGS[settings]) as db:
        filled(db, given, blocks=settings == 1)
        found = finished(db, text_of(name), seed=settings)
    expected = REFERENCES[name]({table: to_rows(rows) for table, rows in given.items()})
    assert_same_rows(to_rows(found), selected(expected, *found.column_names))


@pytest.mark.parametrize(("shape", "settings"), SHAPES_AND_SETTINGS)
@pytest.mark.parametrize("construct", CONSTRUCTS, ids=lambda construct: construct.name)
@pytest.mark.in_turn(9)
def test_constructs(construct: Construct, shape: str, settings: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of 40 rows, in units of 4."""
    monkeypatch.setattr("tsql.backends.local.progressive.units.LEAST_ROWS", 2)
    monkeypatch.setattr("tsql.backends.local.progressive.units.MOST_ROWS", 4)
    given = tables(shape, seed=settings)
    with tsql.connect(**SETTINGS[settings]) as db:
        filled(db, given, blocks=settings == 1)
        for statement in construct.setup:
            db.sql(statement)
        found = to_rows(finished(db, construct.sql, seed=len(construct.sql)))
    assert_answers(construct, found, expected_of(construct, given))
