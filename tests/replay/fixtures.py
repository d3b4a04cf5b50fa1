"""The queries of the tests of rules, plans and errors, as parts of the workload: see `workload.FIXTURES`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

import tsql
from tests.errors import test_bad_input, test_join_hints, test_mutated_queries, test_truncated_statements
from tests.frontend import support as frontend
from tests.frontend import test_errors
from tests.planner.support import session
from tests.plans.queries import QUERIES
from tests.plans.test_edited import EDITED, REFUSED
from tests.replay.workload import THREADS, Recorder
from tests.rules import test_rules


def _note_all(recorder: Recorder, source: str, db: Any, queries: Iterable[str]) -> None:
    for number, sql in enumerate(queries, 1):
        recorder.note_query(source, number, db, sql)


def rules(recorder: Recorder) -> None:
    with session() as db:
        for rule in sorted(path.stem for path in test_rules.FOLDER.glob("*.test")):
            _note_all(recorder, f"rules/{rule}", db, [record.sql for record in test_rules.read(rule) if record.sql])


def plans(recorder: Recorder) -> None:
    for name, (sql, shards) in QUERIES.items():
        with session(shards=shards) as db:
            _note_all(recorder, f"plans/{name}", db, [sql])


def plan_files(recorder: Recorder) -> None:
    """Plans that people wrote; most are refused."""
    with session() as db:
        for path in (*EDITED, *REFUSED):
            text = path.read_text(encoding="utf-8")
            run = lambda text=text, name=path.name: recorder.rows_of(tsql.load_plan_text(text, name).run(db))
            recorder.note(f"plans/{path.parent.name}/{path.name}", "default", 1, text, run)


def bad_input(recorder: Recorder) -> None:
    with tsql.connect(threads=THREADS) as db:
        db.register("t", pa.table({"a": list(range(100)), "s": [str(i) for i in range(100)]}))
        long = [sql for sql, _ in test_bad_input.LONG.values()]
        _note_all(recorder, "errors/bad_input", db, [*long, *test_bad_input.REFUSED])


def join_hints(recorder: Recorder) -> None:
    with tsql.connect(threads=THREADS, shards=3) as db:
        for name in "abc":
            columns = {f"{name}1": [1, 2, None], f"{name}2": [1, 2, 3], f"{name}s": ["x", "y", "z"]}
            db.register(name, pa.table(columns))
        (mark,) = test_join_hints.test_refused.pytestmark
        queries = [f"SELECT /*+ {hint} */ {rest}" for hint, rest, *_ in mark.args[1]]
        _note_all(recorder, "errors/join_hints", db, queries)


def mutated(recorder: Recorder) -> None:
    with tsql.connect(threads=THREADS) as db:
        db.register("t", pa.table({"a": [1, 2], "s": ["x", "y"]}))
        _note_all(recorder, "errors/mutated", db, test_mutated_queries.REFUSED)


def binding(recorder: Recorder) -> None:
    """Queries that the front end refuses, over tables that are not there: they are analyzed only."""
    for number, (sql, *_) in enumerate(test_errors.CASES, 1):
        run = lambda sql=sql: test_errors.analyze(sql, frontend.catalog())
        recorder.note("errors/binding", "default", number, sql, run)


def truncated(recorder: Recorder) -> None:
    """Statements up to each of their words, and without each of them. They are analyzed only."""
    test = test_truncated_statements
    with tsql.connect(threads=THREADS) as db:
        for table in test.TABLES.split(";"):
            db.sql(table)
        for number, statement in enumerate(test.STATEMENTS, 1):
            for text in dict.fromkeys(test._damaged(statement)):
                run = lambda text=text: test.analyze(text, db.catalog, {})
                recorder.note("errors/truncated", "default", number, text, run)
