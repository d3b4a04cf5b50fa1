"""Lifetime functions, and operators per snapshot."""

from __future__ import annotations

from collections.abc import Callable

from tests.temporal.constructs import Construct, Tables
from tests.temporal.data import selected
from tests.temporal.reference.lifetimes import (
    always,
    chop,
    clip,
    extend,
    lifetime,
    point_at_end,
    points,
    quantize,
    shift,
    slide,
    stitch,
)
from tests.temporal.reference.rows import SECOND, Row, Rows, count, distinct_count, equal, greatest, total
from tests.temporal.reference.snapshot import (
    aggregate,
    anti_join,
    clip_join,
    distinct,
    except_all,
    except_distinct,
    full_join,
    inner_join,
    intersect_all,
    intersect_distinct,
    left_join,
    qualified,
    semi_join,
    union_all,
    union_distinct,
)

S = SECOND
LIFE = ("valid_from", "valid_to")
PERIODS = "LIFETIME(periods, start => vs, end => ve)"
MORE = "LIFETIME(more, start => vs, end => ve)"
CLOSED = f"CLIP({PERIODS}, INTERVAL '1 minute')"


def living(t: Tables, table: str = "periods") -> Rows:
    return lifetime(t[table], "vs", end="ve")


def payload(t: Tables, table: str = "periods") -> Rows:
    """Only k, v and the lifetime: rows can be equal."""
    return selected(living(t, table), "k", "v", *LIFE)


def right(t: Tables) -> Rows:
    """The right side of a join, with names of its own."""
    return [
        {"j": row["k"], "w": row["id"], "valid_from": row["valid_from"], "valid_to": row["valid_to"]}
        for row in living(t, "more")
    ]


def on(left: Row, other: Row) -> bool:
    return left["k"] is not None and left["k"] == other["j"]


def _rows(name: str, source: str, result: Callable[[Tables], Rows]) -> Construct:
    """What becomes of each row."""
    return Construct(name, f"SELECT id, valid_from, valid_to FROM {source}", lambda t: selected(result(t), "id", *LIFE))


def _joined(name: str, join: str, result: Callable[[Tables], Rows]) -> Construct:
    sql = f"SELECT l.id AS id, r.id AS w, valid_from, valid_to FROM {PERIODS} l {join} {MORE} r ON l.k = r.k"
    return Construct(name, sql, lambda t: selected(result(t), "id", "w", *LIFE))


def _among_last(key: str, number: int) -> Callable[[Row, Rows], bool]:
    """That a row has one of the greatest ids of its key."""

    def found(row: Row, rows: Rows) -> bool:
        ids = sorted((other["id"] for other in rows if other[key] == row[key]), reverse=True)
        return row["id"] in ids[:number]

    return found


def _combined(name: str, operator: str, result: Callable[[Rows, Rows], Rows], instants: bool = False) -> Construct:
    sql = f"SELECT k, v FROM {PERIODS} {operator} SELECT k, v FROM {MORE}"
    return Construct(
        name, sql, lambda t: selected(result(payload(t), payload(t, "more")), "k", "v", *LIFE), instants=instants
    )


LIFETIMES = (
    _rows("lifetime from start and end", PERIODS, living),
    _rows("lifetime without an end", "LIFETIME(periods, start => vs)", lambda t: lifetime(t["periods"], "vs")),
    _rows(
        "lifetime of a duration",
        "LIFETIME(events, start => ts, duration => INTERVAL '10 seconds')",
        lambda t: lifetime(t["events"], "ts", duration=10 * S),
    ),
    _rows(
        "lifetime of a duration of the row",
        "LIFETIME(periods, start => vs, duration => v * INTERVAL '2 seconds')",
        lambda t: lifetime(t["periods"], "vs", duration=lambda row: row["v"] * 2 * S),
    ),
    _rows("slide", "SLIDE(events, ts, INTERVAL '5 seconds')", lambda t: slide(t["events"], "ts", 5 * S)),
    _rows("shift", f"SHIFT({PERIODS}, INTERVAL '-3 seconds')", lambda t: shift(living(t), -3 * S)),
    _rows("extend", f"EXTEND({PERIODS}, INTERVAL '4 seconds')", lambda t: extend(living(t), 4 * S)),
    _rows("clip", f"CLIP({PERIODS}, INTERVAL '4 seconds')", lambda t: clip(living(t), 4 * S)),
    _rows("chop", f"CHOP({CLOSED}, INTERVAL '10 seconds')", lambda t: chop(clip(living(t), 60 * S), 10 * S)),
    _rows(
        "quantize",
        f"QUANTIZE({PERIODS}, slide => INTERVAL '5 seconds', size => INTERVAL '10 seconds')",
        lambda t: quantize(living(t), 5 * S, 10 * S),
    ),
    _rows("point at end", f"POINT_AT_END({PERIODS})", lambda t: point_at_end(living(t))),
    Construct("stitch", f"SELECT * FROM STITCH((SELECT k, v FROM {PERIODS}))", lambda t: stitch(payload(t))),
    Construct(
        "stitch of what was chopped",
        f"SELECT * FROM STITCH((SELECT id FROM CHOP({CLOSED}, INTERVAL '7 seconds')))",
        lambda t: selected(clip(living(t), 60 * S), "id", *LIFE),
    ),
)
SNAPSHOTS = (
    Construct(
        "snapshot aggregates",
        (
            "SELECT k, count(*) AS n, sum(v)::BIGINT AS total, max(v) AS high, count(DISTINCT v) AS kinds "
            f"FROM {PERIODS} GROUP BY k"
        ),
        lambda t: aggregate(
            living(t), ("k",), n=count, total=total("v"), high=greatest("v"), kinds=distinct_count("v")
        ),
    ),
    Construct(
        "snapshot count of all rows",
        f"SELECT count(*) AS n FROM {PERIODS}",
        lambda t: aggregate(living(t), (), n=count),
    ),
    Construct(
        "snapshot max stays",
        f"SELECT max(v) AS high FROM {PERIODS}",
        lambda t: aggregate(living(t), (), high=greatest("v")),
    ),
    Construct(
        "sliding count",
        "SELECT k, count(*) AS n FROM SLIDE(events, ts, INTERVAL '10 seconds') GROUP BY k",
        lambda t: aggregate(slide(t["events"], "ts", 10 * S), ("k",), n=count),
    ),
    Construct(
        "count of rows that stay",
        "SELECT count(*) AS n FROM LIFETIME(events, start => ts)",
        lambda t: aggregate(lifetime(t["events"], "ts"), (), n=count),
    ),
    Construct(
        "snapshot HAVING",
        f"SELECT k, count(*) AS n FROM {PERIODS} WHERE v > 0 GROUP BY k HAVING count(*) > 1",
        lambda t: [
            row for row in aggregate([row for row in living(t) if row["v"] > 0], ("k",), n=count) if row["n"] > 1
        ],
    ),
    Construct(
        "quantized points",
        (
            "SELECT k, count(*) AS n FROM QUANTIZE(LIFETIME(events, start => ts, duration => INTERVAL '1 "
            "microsecond'), slide => INTERVAL '10 seconds', size => INTERVAL '10 seconds') GROUP BY k"
        ),
        lambda t: aggregate(quantize(points(t["events"], "ts"), 10 * S, 10 * S), ("k",), n=count),
    ),
    Construct("snapshot DISTINCT", f"SELECT DISTINCT k, v FROM {PERIODS}", lambda t: distinct(payload(t))),
    _joined("temporal join", "JOIN", lambda t: inner_join(living(t), right(t), on)),
    _joined("temporal left join", "LEFT JOIN", lambda t: left_join(living(t), right(t), on, ("j", "w"))),
    _joined(
        "temporal full join",
        "FULL JOIN",
        lambda t: full_join(living(t), right(t), on, ("id", "k", "v", "vs", "ve"), ("j", "w")),
    ),
    Construct(
        "temporal join with an untimed relation",
        f"SELECT l.id AS id, n.title AS title, valid_from, valid_to FROM {PERIODS} l JOIN names n ON l.k = n.k",
        lambda t: selected(inner_join(living(t), always(t["names"]), equal("k")), "id", "title", *LIFE),
    ),
    Construct(
        "temporal EXISTS",
        f"SELECT l.id, valid_from, valid_to FROM {PERIODS} l WHERE EXISTS (SELECT 1 FROM {MORE} r WHERE r.k = l.k)",
        lambda t: selected(semi_join(living(t), right(t), on), "id", *LIFE),
    ),
    Construct(
        "temporal NOT EXISTS",
        f"SELECT l.id, valid_from, valid_to FROM {PERIODS} l WHERE NOT EXISTS (SELECT 1 FROM {MORE} r WHERE r.k = l.k)",
        lambda t: selected(anti_join(living(t), right(t), on), "id", *LIFE),
    ),
    Construct(
        "temporal ANTI JOIN",
        f"SELECT l.id, valid_from, valid_to FROM {PERIODS} l ANTI JOIN {MORE} r ON l.k = r.k",
        lambda t: selected(anti_join(living(t), right(t), on), "id", *LIFE),
    ),
    Construct(
        "CLIP JOIN",
        f"SELECT l.id, valid_from, valid_to FROM {PERIODS} l CLIP JOIN {MORE} r ON l.k = r.k",
        lambda t: selected(clip_join(living(t), right(t), on), "id", *LIFE),
    ),
    Construct(
        "CLIP JOIN with a plain relation",
        f"SELECT l.id, valid_from, valid_to FROM {PERIODS} l CLIP JOIN others r ON l.k = r.k",
        lambda t: selected(clip_join(living(t), points(t["others"], "ts"), equal("k")), "id", *LIFE),
    ),
    Construct(
        "CLIP JOIN by another condition",
        f"SELECT l.id, valid_from, valid_to FROM {PERIODS} l CLIP JOIN others r ON l.k = r.k AND r.id > l.id",
        lambda t: selected(
            clip_join(living(t), points(t["others"], "ts"), lambda a, b: equal("k")(a, b) and b["id"] > a["id"]),
            "id",
            *LIFE,
        ),
    ),
    Construct(
        "the first rows of each key per snapshot",
        f"SELECT id, k FROM {PERIODS} QUALIFY row_number() OVER (PARTITION BY k ORDER BY id DESC) <= 2",
        lambda t: selected(qualified(living(t), _among_last("k", 2)), "id", "k", *LIFE),
    ),
    Construct(
        "QUALIFY by ranks and sums per snapshot",
        f"SELECT id, v FROM {PERIODS} WHERE v IS NOT NULL QUALIFY rank() OVER (ORDER BY v) = 1 AND count(*) OVER "
        "(PARTITION BY k) < 3",
        lambda t: selected(
            qualified(
                [row for row in living(t) if row["v"] is not None],
                lambda row, rows: (
                    all(other["v"] >= row["v"] for other in rows) and sum(other["k"] == row["k"] for other in rows) < 3
                ),
            ),
            "id",
            "v",
            *LIFE,
        ),
    ),
    Construct(
        "QUALIFY over a grouping per snapshot",
        f"SELECT k, count(*) AS n FROM {PERIODS} WHERE k IS NOT NULL GROUP BY k QUALIFY rank() OVER (ORDER BY n) = 1",
        lambda t: qualified(
            aggregate([row for row in living(t) if row["k"] is not None], ("k",), n=count),
            lambda row, rows: all(other["n"] >= row["n"] for other in rows),
        ),
    ),
    Construct(
        "LIMIT per snapshot",
        f"SELECT id, valid_from, valid_to FROM (SELECT id, k FROM {PERIODS} ORDER BY id DESC LIMIT 3 OFFSET 1) q",
        lambda t: selected(
            qualified(
                living(t), lambda row, rows: row["id"] in sorted((other["id"] for other in rows), reverse=True)[1:4]
            ),
            "id",
            *LIFE,
        ),
    ),
    _combined("temporal UNION ALL", "UNION ALL", union_all),
    _combined("temporal UNION", "UNION", union_distinct),
    _combined("temporal INTERSECT", "INTERSECT", intersect_distinct),
    _combined("temporal EXCEPT", "EXCEPT", except_distinct),
    _combined("temporal INTERSECT ALL", "INTERSECT ALL", intersect_all, instants=True),
    _combined("temporal EXCEPT ALL", "EXCEPT ALL", except_all, instants=True),
)
