"""Joins in time over plain relations."""

from __future__ import annotations

from tests.temporal.constructs import Construct, Tables
from tests.temporal.data import selected
from tests.temporal.reference.joins import asof_join, band_join
from tests.temporal.reference.rows import SECOND, Rows, equal

S = SECOND
K = equal("k")


def right(t: Tables) -> Rows:
    return [{"k": row["k"], "other": row["id"], "rts": row["ts"]} for row in t["others"]]


def _asof(inequality: str, outer: bool, tolerance: int | None) -> Construct:
    kind = " LEFT" if outer else ""
    limit = "" if tolerance is None else f" TOLERANCE INTERVAL '{tolerance // S} seconds'"
    return Construct(
        f"ASOF{kind} JOIN {inequality}{limit}",
        (
            f"SELECT l.id AS id, r.id AS other FROM events l ASOF{kind} JOIN others r ON l.k = r.k AND l.ts "
            f"{inequality} r.ts{limit}"
        ),
        lambda t: selected(
            asof_join(
                t["events"], right(t), K, "ts", "rts", inequality, tolerance, ("other", "rts") if outer else None
            ),
            "id",
            "other",
        ),
        keep={"others": ("k", "ts")},
    )


JOINS = (
    *(
        _asof(inequality, outer, tolerance)
        for inequality in (">=", ">", "<=", "<")
        for outer in (False, True)
        for tolerance in (None, 2 * S)
    ),
    Construct(
        "ASOF JOIN without a key",
        "SELECT l.id AS id, r.id AS other FROM events l ASOF JOIN others r ON l.ts >= r.ts",
        lambda t: selected(asof_join(t["events"], right(t), lambda one, other: True, "ts", "rts"), "id", "other"),
        keep={"others": ("ts",)},
    ),
    Construct(
        "band join",
        (
            "SELECT l.id AS id, r.id AS other FROM events l JOIN others r ON l.k = r.k AND r.ts BETWEEN l.ts - "
            "INTERVAL '1 second' AND l.ts + INTERVAL '4 seconds'"
        ),
        lambda t: selected(band_join(t["events"], right(t), K, "ts", "rts", -S, 4 * S), "id", "other"),
    ),
    Construct(
        "band join without a key",
        (
            "SELECT l.id AS id, r.id AS other FROM events l JOIN others r ON r.ts > l.ts AND r.ts < l.ts + "
            "INTERVAL '2 seconds'"
        ),
        lambda t: selected(
            band_join(t["events"], right(t), lambda one, other: True, "ts", "rts", 1, 2 * S - 1), "id", "other"
        ),
    ),
)
