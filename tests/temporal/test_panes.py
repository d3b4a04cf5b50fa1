"""Windows made of the states of panes and windows made of rows are the same; a plan says which, and reads back."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tsql
from tests.temporal.constructs import Construct, tables
from tests.temporal.constructs.windows import WINDOWS
from tests.temporal.data import ALL_SHAPES, to_rows
from tests.temporal.test_constructs import REARRANGED, assert_answers, expected_of
from tsql.planner.cost import constants as cost

KINDS = {"hop": "hop", "cumulate": "cumulate", "session": "session"}
CONSTRUCTS = tuple(c for c in WINDOWS if c.name.split()[0].strip(",") in KINDS and "GROUP BY" in c.sql)


@pytest.mark.parametrize("worth", [0.0, 1e9], ids=["rows", "panes"])
@pytest.mark.parametrize("construct", CONSTRUCTS, ids=lambda c: c.name)
@pytest.mark.parametrize("quarter", range(4))
@pytest.mark.in_turn(4)
def test_both_ways(construct: Construct, worth: float, quarter: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "PANES_WORTH", worth)
    for shape in ALL_SHAPES[quarter::4]:
        data = tables(shape, seed=3)
        with tsql.connect(threads=2, shards=3) as db:
            for name, table in data.items():
                db.register(name, table)
            relation = db.sql(construct.sql)
            if "largest size" not in construct.name and "shorter" not in construct.name and data["events"].num_rows:
                assert "= combine" in relation.plan()
                assert ("over=rows" in relation.plan()) == (worth == 0.0)
            assert_answers(construct, to_rows(relation.arrow()), expected_of(construct, data))
            if shape in REARRANGED:
                again = tsql.load_plan_text(relation.plan())
                assert_answers(construct, to_rows(again.run(db).arrow()), expected_of(construct, data))


EVENTS = pa.table(
    {"k": [1, 1, 2] * 100, "ts": pa.array([0, 5_000_000, 9_000_000] * 100, pa.timestamp("us")), "v": [1, 2, 3] * 100}
)
HOP = "HOP(t, ts, slide => INTERVAL '2 seconds', size => INTERVAL '10 seconds')"


def plan_of(sql: str) -> str:
    """The plan over so many rows that they become panes."""
    with tsql.connect(shards=1) as db:
        db.register("t", EVENTS)
        return db.sql(sql).plan()


@pytest.mark.parametrize(
    ("sql", "combined"),
    [
        (f"SELECT window_start, sum(v) FROM {HOP} GROUP BY window_start", True),
        (f"SELECT window_end, k + 1, sum(v) FROM {HOP} WHERE v > 0 GROUP BY ALL", True),
        (
            (
                f"SELECT window_start, window_end, avg(v) FILTER (WHERE v > 1), stddev(v) FROM {HOP} GROUP BY "
                "ALL HAVING count(*) > 1"
            ),
            True,
        ),
        (f"SELECT window_start, median(v) FROM {HOP} GROUP BY window_start", False),
        (f"SELECT window_start, max(window_end) FROM {HOP} GROUP BY window_start", False),
        (f"SELECT k, sum(v) FROM {HOP} GROUP BY k", False),
        (f"SELECT hour(window_start), sum(v) FROM {HOP} GROUP BY ALL", False),
        (
            (
                "SELECT k, window_start, count(*) FROM SESSION(t PARTITION BY k, ts, gap => INTERVAL '2 "
                "seconds') GROUP BY ALL"
            ),
            True,
        ),
        (
            (
                "SELECT window_start, count(*) FROM SESSION(t PARTITION BY k, ts, gap => INTERVAL '2 seconds') "
                "GROUP BY ALL"
            ),
            False,
        ),
        (
            (
                "SELECT k, v, window_start, count(*) FROM SESSION(t PARTITION BY k, ts, gap => INTERVAL '2 "
                "seconds') GROUP BY ALL"
            ),
            False,
        ),
        ("SELECT k, window_id, sum(v) FROM TUMBLE(t PARTITION BY k, ts, rows => 2) GROUP BY ALL", True),
        ("SELECT k, window_start, sum(v) FROM TUMBLE(t PARTITION BY k, ts, rows => 2) GROUP BY ALL", False),
        (
            (
                "SELECT window_end, count(*) FROM CUMULATE(t, ts, step => INTERVAL '1 second', size => "
                "INTERVAL '10 seconds') GROUP BY ALL"
            ),
            True,
        ),
        (
            (
                "SELECT window_start, count(*) FROM CUMULATE(t, ts, step => INTERVAL '1 second', size => "
                "INTERVAL '10 seconds') GROUP BY ALL"
            ),
            False,
        ),
    ],
)
def test_which_are_combined(sql: str, combined: bool) -> None:
    assert ("= combine" in plan_of(sql)) == combined


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("kind=hop", "kind=leap"), "kind=leap: it is one of"),
        (("size=5", "size=0"), "size must be above zero"),
        (("slide=1 ", ""), "kind=hop needs slide"),
        (("pane=pane start", "pane=other start"), "has no column other"),
        (("s=sum(v)", "s=max(v)"), "the partial step"),
        (("width=2000000", "width=wide"), "width=wide: it is a whole number"),
    ],
)
def test_errors_of_plans(change: tuple[str, str], message: str) -> None:
    text = plan_of(f"SELECT window_start, sum(v) AS s FROM {HOP} GROUP BY window_start")
    place = text.index("= combine")
    edited = text[:place] + text[place:].replace(*change, 1)
    assert edited != text
    with tsql.connect(shards=1) as db, pytest.raises(tsql.PlanError, match=message):
        db.register("t", EVENTS)
        tsql.load_plan_text(edited).run(db).arrow()
