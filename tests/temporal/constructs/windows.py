"""Window functions in FROM."""

from __future__ import annotations

from tests.temporal.constructs import Construct
from tests.temporal.data import selected
from tests.temporal.reference.rows import (
    SECOND,
    Rows,
    count,
    distinct_count,
    greatest,
    group_by,
    least,
    median,
    total,
    values,
)
from tests.temporal.reference.windows import count_windows, cumulate, hop, session, tumble

WINDOW = ("window_start", "window_end")
S = SECOND


def _counted(windows: Rows, *keys: str) -> Rows:
    return group_by(windows, (*keys, *WINDOW), n=count, total=total("v"), low=least("x"), high=greatest("name"))


COUNTED = "count(*) AS n, sum(v)::BIGINT AS total, min(x) AS low, max(name) AS high"


def _grouped(name: str, source: str, windows, *keys: str, **options) -> Construct:
    """The aggregates of each window."""
    columns = ", ".join((*keys, *WINDOW))
    sql = f"SELECT {columns}, {COUNTED} FROM {source} GROUP BY {columns}"
    return Construct(name, sql, lambda t: _counted(windows(t["events"]), *keys), **options)


TIES = {"events": ("k", "ts")}
WINDOWS = (
    _grouped("tumble", "TUMBLE(events, ts, INTERVAL '10 seconds')", lambda rows: tumble(rows, "ts", 10 * S), "k"),
    _grouped("tumble, all rows", "TUMBLE(events, ts, INTERVAL '10 seconds')", lambda rows: tumble(rows, "ts", 10 * S)),
    _grouped(
        "tumble with an offset",
        "TUMBLE(events, ts, INTERVAL '10 seconds', offset => INTERVAL '3 seconds')",
        lambda rows: tumble(rows, "ts", 10 * S, 3 * S),
    ),
    _grouped(
        "tumble with an offset before",
        "TUMBLE(events, ts, INTERVAL '1 minute', offset => INTERVAL '-7 seconds')",
        lambda rows: tumble(rows, "ts", 60 * S, -7 * S),
    ),
    _grouped(
        "tumble in Flink's spelling",
        "TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECONDS))",
        lambda rows: tumble(rows, "ts", 10 * S),
    ),
    _grouped(
        "tumble by days", "TUMBLE(events, ts, INTERVAL '1 day')", lambda rows: tumble(rows, "ts", 86_400 * S), "name"
    ),
    _grouped(
        "hop",
        "HOP(events, ts, slide => INTERVAL '2 seconds', size => INTERVAL '10 seconds')",
        lambda rows: hop(rows, "ts", 2 * S, 10 * S),
        "k",
    ),
    _grouped(
        "hop, no multiple",
        "HOP(events, ts, slide => INTERVAL '4 seconds', size => INTERVAL '10 seconds')",
        lambda rows: hop(rows, "ts", 4 * S, 10 * S),
        "k",
    ),
    _grouped(
        "hop with gaps",
        "HOP(events, ts, slide => INTERVAL '10 seconds', size => INTERVAL '4 seconds')",
        lambda rows: hop(rows, "ts", 10 * S, 4 * S),
        "k",
    ),
    _grouped(
        "hop with an offset",
        "HOP(events, ts, slide => INTERVAL '5 seconds', size => INTERVAL '15 seconds', offset => INTERVAL '1 second')",
        lambda rows: hop(rows, "ts", 5 * S, 15 * S, S),
    ),
    _grouped(
        "hop, long",
        "HOP(events, ts, slide => INTERVAL '1 second', size => INTERVAL '1 minute')",
        lambda rows: hop(rows, "ts", S, 60 * S),
        "name",
    ),
    _grouped(
        "cumulate",
        "CUMULATE(events, ts, step => INTERVAL '2 seconds', size => INTERVAL '10 seconds')",
        lambda rows: cumulate(rows, "ts", 2 * S, 10 * S),
        "k",
    ),
    _grouped(
        "session",
        "SESSION(events PARTITION BY k, ts, gap => INTERVAL '2 seconds')",
        lambda rows: session(rows, "ts", 2 * S, ("k",)),
        "k",
    ),
    _grouped(
        "session of all rows", "SESSION(events, ts, gap => INTERVAL '1 second')", lambda rows: session(rows, "ts", S)
    ),
    _grouped(
        "session of two keys",
        "SESSION(events PARTITION BY (k, name), ts, gap => INTERVAL '10 seconds')",
        lambda rows: session(rows, "ts", 10 * S, ("k", "name")),
        "k",
        "name",
    ),
    _grouped(
        "session with a largest size",
        "SESSION(events PARTITION BY k, ts, gap => INTERVAL '10 seconds', max_size => INTERVAL '15 seconds')",
        lambda rows: session(rows, "ts", 10 * S, ("k",), 15 * S),
        "k",
    ),
    _grouped(
        "session shorter than its gap",
        "SESSION(events PARTITION BY k, ts, gap => INTERVAL '10 seconds', max_size => INTERVAL '4 seconds')",
        lambda rows: session(rows, "ts", 10 * S, ("k",), 4 * S),
        "k",
    ),
    Construct(
        "tumble, the rows themselves",
        "SELECT id, window_start, window_end FROM TUMBLE(events, ts, INTERVAL '10 seconds')",
        lambda t: selected(tumble(t["events"], "ts", 10 * S), "id", *WINDOW),
    ),
    Construct(
        "hop, the rows themselves",
        (
            "SELECT id, window_start, window_end FROM HOP(events, ts, slide => INTERVAL '5 seconds', size => "
            "INTERVAL '10 seconds') WHERE v > 0"
        ),
        lambda t: selected(
            [row for row in hop(t["events"], "ts", 5 * S, 10 * S) if row["v"] is not None and row["v"] > 0],
            "id",
            *WINDOW,
        ),
    ),
    Construct(
        "session, the rows themselves",
        "SELECT id, window_start, window_end FROM SESSION(events PARTITION BY k, ts, gap => INTERVAL '2 seconds')",
        lambda t: selected(session(t["events"], "ts", 2 * S, ("k",)), "id", *WINDOW),
    ),
    Construct(
        "count windows per key",
        "SELECT k, window_id, window_start, window_end, count(*) AS n, sum(v)::BIGINT AS total FROM "
        "TUMBLE(events PARTITION BY k, ts, rows => 3) "
        "GROUP BY k, window_id, window_start, window_end",
        lambda t: group_by(
            count_windows(t["events"], "ts", 3, keys=("k",)), ("k", "window_id", *WINDOW), n=count, total=total("v")
        ),
        keep=TIES,
    ),
    Construct(
        "count windows of all rows",
        (
            "SELECT window_id, window_start, window_end, min(id) AS low, max(id) AS high FROM TUMBLE(events, "
            "ts, rows => 7) GROUP BY window_id, window_start, window_end"
        ),
        lambda t: group_by(
            count_windows(t["events"], "ts", 7), ("window_id", *WINDOW), low=least("id"), high=greatest("id")
        ),
        keep={"events": ("ts",)},
    ),
    Construct(
        "hopping count windows",
        "SELECT k, window_id, window_start, window_end, sum(id)::BIGINT AS total FROM HOP(events PARTITION "
        "BY k, ts, slide_rows => 2, rows => 5) "
        "GROUP BY k, window_id, window_start, window_end",
        lambda t: group_by(
            count_windows(t["events"], "ts", 5, 2, ("k",)), ("k", "window_id", *WINDOW), total=total("id")
        ),
        keep=TIES,
    ),
    Construct(
        "holistic aggregates and FILTER",
        "SELECT k, window_start, median(v) AS middle, count(DISTINCT name) AS names, count(*) FILTER "
        "(WHERE v > 0) AS positive "
        "FROM HOP(events, ts, slide => INTERVAL '5 seconds', size => INTERVAL '20 seconds') GROUP BY k, window_start",
        lambda t: group_by(
            hop(t["events"], "ts", 5 * S, 20 * S),
            ("k", "window_start"),
            middle=median("v"),
            names=distinct_count("name"),
            positive=lambda rows: sum(v > 0 for v in values(rows, "v")),
        ),
    ),
    Construct(
        "a window over windows",
        "SELECT window_start, max(n) AS most FROM TUMBLE((SELECT k, window_start AS ts, count(*) AS n FROM "
        "TUMBLE(events, ts, INTERVAL '2 seconds') GROUP BY k, window_start), "
        "ts, INTERVAL '10 seconds') GROUP BY window_start HAVING max(n) > 0",
        lambda t: group_by(
            tumble(
                selected(
                    group_by(tumble(t["events"], "ts", 2 * S), ("k", "window_start"), n=count),
                    "k",
                    "n",
                    ts="window_start",
                ),
                "ts",
                10 * S,
            ),
            ("window_start",),
            most=greatest("n"),
        ),
    ),
    Construct(
        "a join of windows",
        "SELECT a.id AS id, b.id AS other, a.window_start FROM TUMBLE(events, ts, INTERVAL '10 seconds') a "
        "JOIN TUMBLE(others, ts, INTERVAL '10 seconds') b ON a.k = b.k AND a.window_start = b.window_start",
        lambda t: [
            {"id": a["id"], "other": b["id"], "window_start": a["window_start"]}
            for a in tumble(t["events"], "ts", 10 * S)
            for b in tumble(t["others"], "ts", 10 * S)
            if a["k"] is not None and (a["k"], a["window_start"]) == (b["k"], b["window_start"])
        ],
    ),
)
