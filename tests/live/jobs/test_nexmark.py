"""The queries of Nexmark as jobs: random cuts, disorder within the watermark, stopped on the way and resumed with other
threads; the rows are those of the bounded query."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tsql
from bench.nexmark import Query, queries, tables
from tests.live.scripted import Script, cut, scripted
from tests.patience import wait_until
from tests.temporal.asking import ask_duckdb
from tsql.backends.live.sinks.memory import MemorySink
from tsql.kernels.expr.errors import PlanError
from tsql.tpch.measure import difference

QUERIES = queries()
STREAMS = ("person", "auction", "bid")
SO_FAR = {"q4", "q15", "q16", "q17"}
"""Their groups have no time, so no row is ever final: they run with EMIT CHANGES."""
HOLD_ALL = {"q3", "q6", "q9", "q18", "q19", "q20"}
"""They would hold more and more rows: over streams without an end they are refused."""
SECONDS = 4


@cache
def data() -> dict[str, pa.Table]:
    return tables(1_500, per_second=60)


def disordered(table: pa.Table, choose: random.Random) -> pa.Table:
    """The rows as they arrive: each up to some seconds after its time."""
    times = table["date_time"].cast(pa.int64()).to_numpy()
    delays = np.array([choose.uniform(0, SECONDS * 1e6) for _ in times])
    return table.take(pa.array(np.argsort(times + delays, kind="stable")))


def session_of(scripts: dict[str, Script], threads: int, ends: bool, seed: int) -> tsql.Session:
    session = tsql.connect(threads=threads)
    session.register("side_input", data()["side_input"])
    for name, script in scripts.items():
        scripted(session, name, script, data()[name].schema, "date_time", seed=seed, ends=ends,
                 watermark=f"date_time - INTERVAL '{SECONDS} seconds'")  # fmt: skip
    return session


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_live_is_bounded(query: Query, tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    choose = random.Random(seed)
    scripts = {
        name: {f"p{part}": cut(disordered(data()[name].filter(_part(name, part)), choose), seed, most=120)
               for part in range(2)}
        for name in STREAMS
    }  # fmt: skip
    ends = query.name in HOLD_ALL
    sql = query.sql.rstrip().rstrip(";") + (" EMIT CHANGES" if query.name in SO_FAR else "")
    if ends:
        with session_of(scripts, 1, False, seed) as session, pytest.raises(PlanError, match="could not do"):
            session.sql(sql).start()
    sink = MemorySink()
    with session_of(scripts, 1, ends, seed) as session:
        job = session.sql(sql).start(sink, checkpoint=tmp_path / "state", interval=0.001)
        assert wait_until(lambda: job.is_over or job.progress().rows_in >= choose.randrange(300))
        job.stop()
    with session_of(scripts, 3, ends, seed) as session:
        job = session.sql(sql).start(sink, checkpoint=tmp_path / "state", interval=0.001)
        assert wait_until(lambda: job.is_over or all(s.rows == data()[s.name].num_rows for s in job.progress().streams))
        job.stop(drain=True)
        assert job.progress().late == 0
    why = difference(ask_duckdb(query.oracle, data()), sink.result(), ordered=False)
    assert why is None, f"seed {seed}: {why}"


def _part(name: str, part: int) -> pa.Array:
    """Every other row, as two partitions of a stream have them."""
    return pa.array(np.arange(data()[name].num_rows) % 2 == part)
