"""The protocol `Backend`: what a session asks of a backend, all of which every backend has."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_args

import pytest

import tsql
from tests.api.slow import SlowBackend
from tsql.analyze import kinds
from tsql.backends import Backend, Run
from tsql.backends.interp import InterpreterBackend
from tsql.backends.local import LocalBackend
from tsql.query_runner import QueryRunner
from tsql.session import Session
from tsql.statements.perform import PERFORM, StatementContext, perform

METHODS = ("outer_names", "sinks", "run", "run_all", "snapshots", "frame", "close")


def spark_backend() -> type:
    pytest.importorskip("pyspark")
    from tsql.backends.spark import SparkBackend

    return SparkBackend


@pytest.mark.parametrize(
    "found", [lambda: LocalBackend, lambda: InterpreterBackend, spark_backend, lambda: SlowBackend]
)
def test_each_backend_has_all_of_the_protocol(found: Callable[[], type]) -> None:
    kind = found()
    assert Backend in kind.__mro__ and not inspect.isabstract(kind)
    assert isinstance(kind.name, str) and kind.target in ("local", "spark")
    for name in METHODS:
        parameters = list(inspect.signature(getattr(Backend, name)).parameters)
        assert list(inspect.signature(getattr(kind, name)).parameters) == parameters, name


def test_the_protocol_is_what_a_session_asks_for() -> None:
    assert {*METHODS, "name", "target", "shards", "broadcast_bytes"} == {
        name for name in (*vars(Backend), *Backend.__annotations__) if not name.startswith("_")
    }


def test_a_backend_that_lacks_something_cannot_be_made() -> None:
    class Partial(Backend):
        name = "partial"
        target = "local"
        shards = None

        def run(self, plan: Any, run: Run) -> Any:
            return iter(())

    with pytest.raises(TypeError, match="run_all"):
        Partial()


@pytest.mark.parametrize("backend", [None, 3, object()])
def test_what_is_no_backend(backend: Any) -> None:
    with pytest.raises(tsql.CatalogError, match="a backend is the name of one, not") as caught:
        Session(backend)
    assert caught.value.hint == "backends are local, interp, spark"


@pytest.mark.parametrize("backend", ["local", "interp"])
def test_there_are_no_frames_of_spark_here(backend: str) -> None:
    with tsql.connect(backend=backend) as db:
        relation = db.sql("SELECT 1 AS x")
        plan = db._queries.plan(next(iter(db._plans._plans.values())))
        loaded = tsql.load_plan_text(relation.plan()).run(db)
        db.execute("BEGIN")
        for ask in (relation.to_spark, loaded.to_spark, db.sql("SHOW TABLES").to_spark):
            with pytest.raises(tsql.CatalogError, match="^this relation is not of a session on Spark\nhint: connect"):
                ask()
        with pytest.raises(tsql.CatalogError, match="this relation is not of a session on Spark"):
            db.backend.frame(plan, Run())
        assert db.sql("SELECT 2 AS x").fetchall() == [(2,)], "no query has failed, and the transaction goes on"


def test_a_backend_is_closed_with_its_session_and_twice() -> None:
    db = tsql.connect()
    backend = db.backend
    db.sql("SELECT 1").fetchall()
    db.close()
    backend.close()


def test_a_backend_is_made_by_need(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr("tsql.query_runner.make_backend", lambda name, spark=None: made.append(name) or LocalBackend())
    with tsql.connect() as db:
        db.execute("CREATE TABLE t (x INTEGER)")
        assert db.target == "local" and db.sql("FROM t").columns == ["x"] and made == []
        assert db.sql("FROM t").fetchall() == [] and made == ["local"]
    with tsql.connect():
        pass
    assert made == ["local"]


def test_settings_can_be_replaced() -> None:
    with tsql.connect(batch_rows=1) as db:
        other = type(db.settings)(shards=3)
        db.settings = other
        assert db.settings is other and isinstance(db._queries, QueryRunner) and db._queries.settings is other
        db.execute("SET shards = 2")
        assert other.shards == 2


def test_each_kind_of_statement_is_carried_out() -> None:
    assert {*PERFORM} == {*get_args(kinds.Statement)}


def test_a_statement_of_no_kind() -> None:
    with tsql.connect() as db, pytest.raises(tsql.PlanError, match="^object statements cannot run here$"):
        perform(StatementContext(db._scripts, None, {}), object())
