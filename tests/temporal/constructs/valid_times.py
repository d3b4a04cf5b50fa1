"""Tables that say when their rows are valid (PERIOD FOR): SEQUENCED VALIDTIME and FOR VALID_TIME AS OF."""

from __future__ import annotations

from tests.temporal.constructs import Construct
from tests.temporal.constructs.lifetimes import LIFE, living, on, payload, right
from tests.temporal.data import selected
from tests.temporal.reference.joins import as_of, join_as_of
from tests.temporal.reference.rows import Rows, count, equal, us
from tests.temporal.reference.snapshot import aggregate, anti_join, distinct, inner_join, left_join

COLUMNS = "(id BIGINT, k BIGINT, v BIGINT, vs TIMESTAMP, ve TIMESTAMP, PERIOD FOR valid_time (vs, ve))"
SETUP = (
    f"CREATE TABLE rates {COLUMNS}",
    "INSERT INTO rates SELECT * FROM periods",
    f"CREATE TABLE fees {COLUMNS}",
    "INSERT INTO fees SELECT * FROM more",
)
K = equal("k")
OUTER = ("other", "vs", "ve")


def rates(rows: Rows) -> Rows:
    """The right side of a join, with names of its own."""
    return [{"k": row["k"], "other": row["id"], "vs": row["vs"], "ve": row["ve"]} for row in rows]


VALID_TIMES = (
    Construct(
        "lifetime of a period",
        "SELECT id, valid_from, valid_to FROM LIFETIME(rates)",
        lambda t: selected(living(t), "id", *LIFE),
        setup=SETUP,
    ),
    Construct(
        "sequenced aggregate",
        "SEQUENCED VALIDTIME SELECT k, count(*) AS n FROM rates GROUP BY k",
        lambda t: aggregate(living(t), ("k",), n=count),
        setup=SETUP,
    ),
    Construct(
        "sequenced DISTINCT",
        "SEQUENCED VALIDTIME SELECT DISTINCT k, v FROM rates",
        lambda t: distinct(payload(t)),
        setup=SETUP,
    ),
    Construct(
        "sequenced filter",
        "SEQUENCED VALIDTIME SELECT id FROM rates WHERE v > 0",
        lambda t: selected([r for r in living(t) if r["v"] > 0], "id", *LIFE),
        setup=SETUP,
    ),
    Construct(
        "sequenced join",
        "SEQUENCED VALIDTIME SELECT l.id AS id, r.id AS w FROM rates l JOIN fees r ON l.k = r.k",
        lambda t: selected(inner_join(living(t), right(t), on), "id", "w", *LIFE),
        setup=SETUP,
    ),
    Construct(
        "sequenced left join",
        "SEQUENCED VALIDTIME SELECT l.id AS id, r.id AS w FROM rates l LEFT JOIN fees r ON l.k = r.k",
        lambda t: selected(left_join(living(t), right(t), on, ("j", "w")), "id", "w", *LIFE),
        setup=SETUP,
    ),
    Construct(
        "sequenced NOT EXISTS",
        "SEQUENCED VALIDTIME SELECT l.id AS id FROM rates l WHERE NOT EXISTS (SELECT 1 FROM fees r WHERE r.k = l.k)",
        lambda t: selected(anti_join(living(t), right(t), on), "id", *LIFE),
        setup=SETUP,
    ),
    Construct(
        "as of a moment",
        "SELECT id FROM rates FOR VALID_TIME AS OF TIMESTAMP '2024-02-29 12:00:20'",
        lambda t: selected(as_of(t["periods"], us("2024-02-29 12:00:20")), "id"),
        setup=SETUP,
    ),
    Construct(
        "join as of",
        "SELECT e.id AS id, r.id AS other FROM events e JOIN rates FOR VALID_TIME AS OF e.ts AS r ON e.k = r.k",
        lambda t: selected(join_as_of(t["events"], rates(t["periods"]), K, "ts"), "id", "other"),
        setup=SETUP,
    ),
    Construct(
        "left join as of",
        "SELECT e.id AS id, r.id AS other FROM events e LEFT JOIN rates FOR SYSTEM_TIME AS OF e.ts AS r ON e.k = r.k",
        lambda t: selected(join_as_of(t["events"], rates(t["periods"]), K, "ts", outer=OUTER), "id", "other"),
        setup=SETUP,
    ),
)
