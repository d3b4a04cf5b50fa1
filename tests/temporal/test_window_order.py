"""Aggregates that depend on the order of rows, over windows in time: the order is that of the rows of the window
function, whatever way a plan takes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import tsql
from tests.temporal.data import EVENTS, NOON, SECOND, assert_same_rows, to_table
from tests.temporal.live.lives import CONFIGURATIONS, ask
from tests.temporal.reference.rows import Rows, group_by, values
from tests.temporal.reference.windows import cumulate, hop, session
from tsql.planner.cost import constants as cost


def best(rows: Rows, largest: bool) -> Any:
    """The id of the first row with the smallest or largest v."""
    known = [row for row in rows if row["v"] is not None]
    return None if not known else (max if largest else min)(known, key=lambda row: row["v"])["id"]


def by_value(rows: Rows) -> Rows:
    """In the order of v, NULLs last; equal ones as they are."""
    return sorted(rows, key=lambda row: (row["v"] is None, row["v"] or 0))


def joined(found: list[Any]) -> str | None:
    return ",".join(map(str, found)) if found else None


def last_by_value(rows: Rows) -> int:
    """Of the rows that tie for the last place, the first in the input."""
    return next(row["id"] for row in rows if row["v"] == by_value(rows)[-1]["v"])


ORDERED: dict[str, Callable[[Rows], Any]] = {
    "first(v)": lambda rows: rows[0]["v"],
    "last(v)": lambda rows: rows[-1]["v"],
    "first(name)": lambda rows: rows[0]["name"],
    "last(id) FILTER (WHERE x > 0)": lambda rows: next(
        (row["id"] for row in reversed(rows) if row["x"] is not None and row["x"] > 0), None
    ),
    "any_value(v)": lambda rows: next(iter(values(rows, "v")), None),
    "arg_min(id, v)": lambda rows: best(rows, False),
    "arg_max(id, v)": lambda rows: best(rows, True),
    "mode(v)": lambda rows: max(values(rows, "v"), key=values(rows, "v").count, default=None),
    "string_agg(id::VARCHAR, ',')": lambda rows: joined(values(rows, "id")),
    "string_agg(DISTINCT v::VARCHAR, ',')": lambda rows: joined(list(dict.fromkeys(values(rows, "v")))),
    "first(id ORDER BY v)": lambda rows: by_value(rows)[0]["id"],
    "last(id ORDER BY v)": last_by_value,
    "string_agg(id::VARCHAR, ',' ORDER BY v)": lambda rows: joined(values(by_value(rows), "id")),
}
"""What each gives over rows in their order."""

WINDOWS: dict[str, tuple[str, Callable[[Rows], Rows]]] = {
    "hop": (
        "HOP(events, ts, slide => INTERVAL '5 seconds', size => INTERVAL '10 seconds')",
        lambda rows: hop(rows, "ts", 5 * SECOND, 10 * SECOND),
    ),
    "cumulate": (
        "CUMULATE(events, ts, step => INTERVAL '5 seconds', size => INTERVAL '20 seconds')",
        lambda rows: cumulate(rows, "ts", 5 * SECOND, 20 * SECOND),
    ),
    "session": (
        "SESSION(events PARTITION BY k, ts, gap => INTERVAL '2 seconds')",
        lambda rows: session(rows, "ts", 2 * SECOND, ("k",)),
    ),
}
"""The rows of sessions come in the order of time, and of the input where that is the same."""


def disordered(seed: str, count: int = 60) -> Rows:
    """Rows in no order of time, with many ties."""
    rng = random.Random(seed)
    return [
        {
            "id": i,
            "k": rng.randrange(2),
            "name": rng.choice((None, "a", "b")),
            "v": rng.choice((None, 1, 2, 3)),
            "x": rng.choice((-1.0, 1.0)),
            "ts": NOON + rng.randrange(60) * SECOND,
        }
        for i in range(count)
    ]


@pytest.mark.parametrize("worth", [0.0, 1e9], ids=["rows", "panes"])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("call", ORDERED)
@pytest.mark.parametrize("configuration", ["shards_1", "shards_3", "batch_rows_1", "spill", "plan_text"])
@pytest.mark.in_turn(8)
def test_order(window: str, call: str, worth: float, configuration: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "PANES_WORTH", worth)
    rows = disordered(f"{window} {call}")
    text, placed = WINDOWS[window]
    sql = f"SELECT k, window_start, window_end, {call} AS result FROM {text} GROUP BY ALL"
    expected = group_by(placed(rows), ("k", "window_start", "window_end"), result=ORDERED[call])
    assert_same_rows(ask(sql, {"events": to_table(rows, EVENTS)}, configuration=configuration), expected)


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.in_turn(3)
def test_other_columns_do_not_matter(window: str, configuration: str) -> None:
    """A string_agg is not made from panes, and must not change what is beside it."""
    table = to_table(disordered(window, 12), EVENTS)
    shown = "k, window_start, window_end, first(id) AS f, last(id) AS l, arg_min(id, 1) AS m"
    few, more = (
        ask(
            f"SELECT {columns} FROM {WINDOWS[window][0]} GROUP BY k, window_start, window_end",
            {"events": table},
            configuration=configuration,
        )
        for columns in (shown, f"{shown}, string_agg(id::VARCHAR, ',') AS s")
    )
    assert_same_rows(few, [{name: row[name] for name in few[0]} for row in more])


def test_panes_of_two_rows() -> None:
    """The first row of the input is in the last pane."""
    minute = 60 * SECOND
    rows = pa.table({"id": [0, 1], "s": pa.array([NOON + 6 * minute, NOON + minute], pa.timestamp("us"))})
    sql = (
        "SELECT window_end, first(id) AS f, last(id) AS l FROM HOP(a, s, slide => INTERVAL '5 minutes', size "
        "=> INTERVAL '10 minutes') GROUP BY window_end"
    )
    with tsql.connect() as db:
        db.register("a", rows)
        assert "= combine" in db.sql(sql).plan()
        found = {(row["f"], row["l"]) for row in db.sql(sql).arrow().to_pylist()}
    assert found == {(1, 1), (0, 1), (0, 0)}
