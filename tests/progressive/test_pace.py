"""Snapshots that would come later than the exact result are left out."""

from __future__ import annotations

import pytest

import tsql
from tsql.backends.local.progressive.pace import LEFT_OUT, Pace

SQL = "SELECT i % 1000 AS g, sum(i) AS s FROM t GROUP BY g PROGRESSIVE EVERY 20 PERCENT"


def test_the_rest_of_the_query_decides() -> None:
    pace = Pace()
    pace.read(1.0)
    pace.showed(100.0, 1)
    pace.showed(0.5, 100_000)
    # A tenth of the rows took a second: the rest takes nine.
    assert pace.allows(100_000, 0.1) and pace.allows(900_000, 0.1) and not pace.allows(900_001, 0.1)
    assert not pace.allows(100_000, 0.6) and pace.allows(10_000, 0.99)
    assert pace.left_out == 2


@pytest.mark.parametrize(("seconds", "shown"), [(0.0, 4), (1.0, 0)])
def test_a_query(seconds: float, shown: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsql.backends.local.progressive.pace.GROUP_SECONDS", seconds)
    monkeypatch.setattr("tsql.backends.local.progressive.pace.FEW_GROUPS", 0 if seconds else 10_000)
    with tsql.connect(threads=2) as db:
        db.execute("CREATE TABLE t AS SELECT i FROM range(20000) AS r(i)")
        relation = db.sql(SQL)
        *some, last = relation.snapshots()
        assert len(some) == shown and last.is_final and last.table.num_rows == 1000
        assert (LEFT_OUT in relation.notes) == (shown == 0)
