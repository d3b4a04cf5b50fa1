"""The line `emit` of a plan file: what EMIT says, printed, read and refused."""

from __future__ import annotations

import pytest

import tsql
from tsql.kernels.expr.errors import PlanError
from tsql.planner.logical.emission import AT_ONCE, AT_PUNCTUATION, AT_WATERMARK, Emission
from tsql.planner.physical.planfile import parse_plan

CLAUSES = (
    ("EMIT FINAL", "final", Emission(), AT_PUNCTUATION),
    ("EMIT CHANGES", "changes", Emission("changes"), AT_ONCE),
    ("EMIT EVERY INTERVAL '10 seconds'", "final every_us=10000000", Emission(every_us=10_000_000), AT_PUNCTUATION),
    (
        "EMIT EVERY INTERVAL '1 minute' BEFORE WATERMARK",
        "final every_us=60000000 before_watermark=yes",
        Emission(every_us=60_000_000, before_watermark=True),
        AT_ONCE,
    ),
    (
        "EMIT FINAL, CHANGES AFTER WATERMARK WITHIN INTERVAL '200 milliseconds'",
        "final changes_after_watermark=yes within_us=200000",
        Emission(changes_after_watermark=True, within_us=200_000),
        AT_WATERMARK,
    ),
)


@pytest.fixture
def db():  # type: ignore[no-untyped-def]
    with tsql.connect(threads=2) as session:
        session.register("t", [{"a": 1}, {"a": 2}, {"a": 1}])
        yield session


@pytest.mark.parametrize(("clause", "line", "emission", "horizon"), CLAUSES)
def test_it_prints_and_parses(db: tsql.Session, clause: str, line: str, emission: Emission, horizon: str) -> None:
    text = db.sql(f"SELECT a, count(*) AS n FROM t GROUP BY a {clause}").plan()
    assert f"\nemit {line}\n" in text
    plan = parse_plan(text, db.catalog)
    assert (plan.emission, plan.text()) == (emission, text)
    assert plan.emission is not None and plan.emission.horizon == horizon


def test_a_bounded_run_gives_its_rows_once(db: tsql.Session) -> None:
    for clause, *_ in CLAUSES:
        text = db.sql(f"SELECT a, count(*) AS n FROM t GROUP BY a {clause}").plan()
        assert sorted(tsql.load_plan_text(text).run(db).fetchall()) == [(1, 2), (2, 1)]


def test_without_emit_there_is_no_line(db: tsql.Session) -> None:
    assert "emit" not in db.sql("SELECT a FROM t").plan()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("emit", "emit takes final or changes"),
        ("emit often", "emit takes final or changes"),
        ("emit final every_us=0", "every_us"),
        ("emit final every_us=soon", "every_us"),
        ("emit final before_watermark=yes", "before_watermark=yes goes with every_us"),
        ("emit final colour=red", "unknown attribute colour"),
        ("emit final within_us=1 within_us=2", "within_us is given twice"),
    ],
)
def test_it_is_refused(db: tsql.Session, line: str, message: str) -> None:
    text = db.sql("SELECT a FROM t EMIT FINAL").plan().replace("emit final", line)
    with pytest.raises(PlanError, match=message) as caught:
        tsql.load_plan_text(text).run(db)
    assert "line 4" in str(caught.value)
