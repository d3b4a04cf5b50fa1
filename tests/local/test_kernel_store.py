"""`KernelStore`: a backend keeps the kernels of its plans as long as the plans live, and no longer."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from typing import Any

import pytest

import tsql
from tsql.backends import Run
from tsql.backends.interp import InterpreterBackend
from tsql.backends.local import LocalBackend
from tsql.backends.local.kernel_store import KernelStore
from tsql.planner import PhysicalPlan
from tsql.session import Session

QUERIES = (
    "SELECT 1 AS x",
    "SELECT sum(v) AS v FROM t WHERE id < 100",
    "SELECT k, count(*) AS n, sum(v) AS v FROM t GROUP BY k ORDER BY k",
    "SELECT v, count(DISTINCT k) AS n FROM t GROUP BY v ORDER BY v LIMIT 3",
    "SELECT a.id, b.v FROM t a JOIN t b ON a.id = b.v WHERE b.k < 5 ORDER BY a.id",
    "SELECT id, sum(v) OVER (PARTITION BY k ORDER BY id ROWS 3 PRECEDING) AS s FROM t",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM t u WHERE u.v = t.id) UNION ALL SELECT v FROM t",
    "WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM r WHERE i < 9) SELECT sum(i) AS i FROM r",
    "SELECT string_agg(CAST(id AS VARCHAR), ',' ORDER BY id) AS ids FROM t WHERE id < 9",
)

TEXT = """\
plan version 1
query "SELECT 1 AS x"
target local shards=2

constants = values columns=() rows=(())
projected = project constants x=1
output projected (x)
"""


@pytest.fixture
def db() -> Any:
    with tsql.connect(threads=2) as session:
        session.execute("CREATE TABLE t AS SELECT i AS id, i % 7 AS k, (i * 37) % 1000 AS v FROM range(5000) r(i)")
        yield session


def plan_of(db: Session, sql: str) -> PhysicalPlan:
    db.sql(sql)
    return next(p for p in db._plans._plans.values() if p.piece.text == sql).physical


@pytest.mark.parametrize("sql", QUERIES)
def test_kernels_go_with_the_plan(db: Session, sql: str) -> None:
    """Nothing that a backend keeps of a plan holds on to it, also once its calls were recorded."""
    for _ in range(4):
        db.sql(sql).arrow()
    plan = plan_of(db, sql)
    kernels = db.backend.kernels.of(plan)
    assert kernels.runs and db.backend.kernels.of(plan) is kernels
    gone = [weakref.ref(plan), weakref.ref(kernels)]
    del plan, kernels
    db._plans.clear()
    gc.collect()
    assert [known() for known in gone] == [None, None]
    assert not db.backend.kernels._kept


def test_nothing_is_written_into_the_plan(db: Session) -> None:
    sql = QUERIES[1]
    db.sql(sql).arrow()
    assert not {name for name in vars(plan_of(db, sql)) if name.startswith("_")}


def test_equal_plans_have_kernels_of_their_own() -> None:
    store = KernelStore()
    one, other = (tsql.load_plan_text(TEXT).bind(tsql.Session()) for _ in range(2))
    assert one == other and store.of(one) is not store.of(other)


def test_backends_share_nothing() -> None:
    plan = tsql.load_plan_text(TEXT).bind(tsql.Session())
    backends = [LocalBackend(), LocalBackend(), InterpreterBackend()]
    for backend in backends:
        assert [batch.to_pydict() for batch in backend.run(plan, Run())] == [{"x": [1]}]
    assert len({id(backend.kernels.of(plan)) for backend in backends}) == 3
    assert [backend.kernels.of(plan).runs for backend in backends] == [1, 1, 1]


def test_a_closed_backend_keeps_nothing() -> None:
    plan = tsql.load_plan_text(TEXT).bind(tsql.Session())
    backend = LocalBackend()
    kernels = weakref.ref(backend.kernels.of(plan))
    backend.close()
    gc.collect()
    assert kernels() is None


def test_a_store_goes_without_a_search_for_garbage() -> None:
    """Recordings hold memory, which is not to wait for the collector."""
    plan = tsql.load_plan_text(TEXT).bind(tsql.Session())
    store = KernelStore()
    kernels = weakref.ref(store.of(plan))
    gc.disable()
    try:
        del store
        assert kernels() is None
    finally:
        gc.enable()


def test_what_an_interrupt_has_left_is_not_found() -> None:
    """Ctrl-C may end the callback that forgets a plan; another plan can have its address then."""
    store = KernelStore()
    gone, plan = (tsql.load_plan_text(TEXT).bind(tsql.Session()) for _ in range(2))
    store.of(gone)
    entry = store._kept.pop(id(gone))
    del gone
    store._kept[id(plan)] = entry
    assert entry[0]() is None
    assert store.of(plan) is not entry[1] and store.of(plan) is store.of(plan)


def test_many_threads_ask_at_once() -> None:
    store, plan = KernelStore(), tsql.load_plan_text(TEXT).bind(tsql.Session())
    found: list[Any] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        found.append(store.of(plan))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len({id(kernels) for kernels in found}) == 1


def test_a_child_has_the_kernels_of_its_parent(db: Session) -> None:
    sql = QUERIES[2]
    expected = [db.sql(sql).arrow() for _ in range(3)][-1]
    kernels = db.backend.kernels.of(plan_of(db, sql))
    child = os.fork()
    if child == 0:
        try:
            same = db.backend.kernels.of(plan_of(db, sql)) is kernels and db.sql(sql).arrow() == expected
            os._exit(0 if same else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
