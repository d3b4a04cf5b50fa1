"""A data pipeline on Spark: raw click events in, published tables out. `python examples/pipeline.py [master]`.

Web servers write JSON, an app writes Parquet. Rows come twice, out of order, hours late, or broken. Each step is one
statement of SQL that the tasks of the cluster compute and write:

    raw/*.json, raw/*.parquet
      -> rejected/            rows that cannot be read, with the reason
      -> late/                rows that arrived more than an hour after they happened
      -> clean/day=../        every other event once
           -> sessions/day=../         visits of a user, for other programs
           -> web.traffic             sales per quarter of an hour, section and plan, a table of Spark's catalog

Steps replace what they wrote before, so the pipeline can run again at any time. It runs twice here. In the end Spark
reads what was published, and plain Python computes the same from the raw rows."""

from __future__ import annotations

import datetime as dt
import json
import random
import sys
import tempfile
from collections import Counter, defaultdict
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import tsql

ROWS = 20_000
START = dt.datetime(2026, 3, 1, 6)
SECTIONS = {"home": "start", "search": "start", "shoes": "shop", "hats": "shop", "help": "service"}
BROKEN = ({"event_id": None}, {"user_id": None}, {"ts": "yesterday"}, {"amount": "12,50 EUR"})
LATE = dt.timedelta(hours=1)
GAP = dt.timedelta(minutes=30)

RAW = """
CREATE OR REPLACE VIEW raw AS
SELECT event_id, user_id, page, TRY_CAST(ts AS TIMESTAMP) AS ts, received, TRY_CAST(amount AS DECIMAL(10, 2)) AS amount,
       CASE WHEN event_id IS NULL THEN 'no id'
            WHEN user_id IS NULL THEN 'no user'
            WHEN TRY_CAST(ts AS TIMESTAMP) IS NULL THEN 'bad time'
            WHEN TRY_CAST(amount AS DECIMAL(10, 2)) IS NULL THEN 'bad amount' END AS problem
FROM (
  SELECT event_id, user_id, page, ts, received, amount
  FROM read_json('{folder}/raw/*.json', columns => {{event_id: 'BIGINT', user_id: 'BIGINT', page: 'VARCHAR',
                                                   ts: 'VARCHAR', received: 'TIMESTAMP', amount: 'VARCHAR'}})
  UNION ALL
  SELECT event_id, user_id, page, ts, received, amount FROM '{folder}/raw/*.parquet'
)
"""

PLANS = """
CREATE OR REPLACE TABLE plans (user_id BIGINT, plan VARCHAR, since TIMESTAMP, until TIMESTAMP,
  PERIOD FOR valid_time (since, until))
WITH (connector = 'parquet', path = '{folder}/plans.parquet')
"""

STEPS = {
    "rejected": """
COPY (SELECT * FROM raw WHERE problem IS NOT NULL)
TO '{folder}/rejected/' (FORMAT json, OVERWRITE)
""",
    "late": """
COPY (SELECT * EXCLUDE (problem) FROM raw WHERE problem IS NULL AND received > ts + INTERVAL '1 hour')
TO '{folder}/late/' (FORMAT parquet, OVERWRITE)
""",
    "clean": """
COPY (
  SELECT event_id, user_id, page, ts, amount, ts::DATE AS day
  FROM raw
  WHERE problem IS NULL AND received <= ts + INTERVAL '1 hour'
  QUALIFY row_number() OVER (PARTITION BY event_id ORDER BY received) = 1
)
TO '{folder}/clean' (FORMAT parquet, PARTITION_BY (day), OVERWRITE)
""",
    "sessions": """
COPY (
  SELECT user_id, min(ts) AS began, max(ts) AS ended, count(*) AS clicks, sum(amount) AS spent,
         min(ts)::DATE AS day
  FROM SESSION('{folder}/clean' PARTITION BY user_id, ts, gap => INTERVAL '30 minutes')
  GROUP BY user_id, window_start, window_end
)
TO '{folder}/sessions' (FORMAT parquet, PARTITION_BY (day), OVERWRITE)
""",
    "traffic": """
CREATE OR REPLACE TABLE spark_catalog.web.traffic AS
SELECT c.window_start AS quarter, s.section, coalesce(p.plan, 'none') AS plan,
       count(*) AS clicks, sum(c.amount) AS sales
FROM TUMBLE('{folder}/clean', ts, INTERVAL '15 minutes') c
JOIN pages s ON s.page = c.page
LEFT JOIN plans FOR VALID_TIME AS OF c.ts AS p ON p.user_id = c.user_id
GROUP BY ALL
""",
}
"""The pipeline. `pages` is a temporary view of Spark, `plans` a table with validity over a Parquet file."""


def raw_events(rows: int, seed: int = 1) -> list[dict[str, Any]]:
    """Events of a day as their senders write them."""
    chance, events = random.Random(seed), []
    for number in range(rows):
        ts = START + dt.timedelta(milliseconds=chance.randrange(24 * 3600 * 1000))
        delay = chance.choice((1, 5, 30, 300)) if chance.random() < 0.98 else chance.randrange(3601, 20_000)
        events.append(
            {
                "event_id": number,
                "user_id": chance.randrange(max(1, rows // 40)),
                "page": chance.choice([*SECTIONS]),
                "ts": str(ts),
                "received": ts + dt.timedelta(seconds=delay),
                "amount": f"{chance.randrange(5000) / 100:.2f}" if chance.random() < 0.1 else "0",
            }
        )
    for event in chance.sample(events, rows // 50):
        event.update(chance.choice(BROKEN))
    for event in chance.sample(events, rows // 20):  # sent again, since an answer was lost
        events.append(event | {"received": event["received"] + dt.timedelta(seconds=chance.randrange(1, 60))})
    chance.shuffle(events)
    return events


def validities(users: int) -> list[dict[str, Any]]:
    """Every third user has no plan, every third begins to pay at noon, the others always pay."""
    noon, midnight = START.replace(hour=12), START.replace(hour=0)
    found = []
    for user in range(users):
        if user % 3 == 1:
            found.append({"user_id": user, "plan": "free", "since": midnight, "until": noon})
        if user % 3:
            found.append({"user_id": user, "plan": "paid", "since": noon if user % 3 == 1 else midnight, "until": None})
    return found


def write_raw(events: list[dict[str, Any]], plans: list[dict[str, Any]], folder: Path) -> None:
    """Three JSON files of the web servers, two Parquet files of the app, and the table of plans."""
    (folder / "raw").mkdir()
    for number in range(3):
        lines = [json.dumps(event, default=str) for event in events[number::5]]
        (folder / "raw" / f"web-{number}.json").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for number in (3, 4):
        pq.write_table(pa.Table.from_pylist(events[number::5]), folder / "raw" / f"app-{number}.parquet")
    pq.write_table(pa.Table.from_pylist(plans), folder / "plans.parquet")


def run_pipeline(db: tsql.Session, folder: Path) -> dict[str, int]:
    """Run every step. Returns the rows that each has written."""
    db.execute(RAW.format(folder=folder))
    db.execute(PLANS.format(folder=folder))
    return {name: db.sql(step.format(folder=folder)).fetchall()[0][0] for name, step in STEPS.items()}


def expected(events: list[dict[str, Any]], plans: list[dict[str, Any]]) -> tuple[set[Any], set[Any]]:
    """Sessions and traffic as plain Python computes them."""
    clean: dict[int, dict[str, Any]] = {}
    for event in sorted(events, key=lambda event: event["received"]):
        is_bad = None in event.values() or event["ts"] == "yesterday" or "," in event["amount"]
        if is_bad or event["received"] - dt.datetime.fromisoformat(event["ts"]) > LATE:
            continue
        read = {"ts": dt.datetime.fromisoformat(event["ts"]), "amount": Decimal(event["amount"])}
        clean.setdefault(event["event_id"], event | read)

    periods: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for plan in plans:
        periods[plan["user_id"]].append(plan)
    open_sessions: dict[int, list[Any]] = {}
    sessions: list[list[Any]] = []
    clicks: Counter[Any] = Counter()
    sales: dict[Any, Decimal] = defaultdict(Decimal)
    for event in sorted(clean.values(), key=lambda event: event["ts"]):
        ts, user, amount = event["ts"], event["user_id"], event["amount"]
        session = open_sessions.get(user)
        if session is None or ts - session[2] > GAP:
            session = open_sessions[user] = [user, ts, ts, 0, Decimal(0)]
            sessions.append(session)
        session[2:] = [ts, session[3] + 1, session[4] + amount]
        valid = [p["plan"] for p in periods[user] if p["since"] <= ts and (p["until"] is None or ts < p["until"])]
        quarter = ts.replace(minute=ts.minute // 15 * 15, second=0, microsecond=0)
        key = (quarter, SECTIONS[event["page"]], valid[0] if valid else "none")
        clicks[key] += 1
        sales[key] += amount
    return {tuple(session) for session in sessions}, {(*key, n, sales[key]) for key, n in clicks.items()}


def run(db: tsql.Session, spark: Any, folder: Path, rows: int = ROWS) -> bool:
    """Make the data, run the pipeline twice, and compare. Returns whether all answers are right."""
    events, plans = raw_events(rows), validities(max(1, rows // 40))
    write_raw(events, plans, folder)
    print(f"raw: {len(events):,} rows in 3 JSON and 2 Parquet files")

    spark.createDataFrame([*SECTIONS.items()], "page string, section string").createOrReplaceTempView("pages")
    spark.sql(f"CREATE DATABASE IF NOT EXISTS web LOCATION '{(folder / 'warehouse').as_uri()}'")
    first = run_pipeline(db, folder)
    for name, written in first.items():
        print(f"{name}: {written:,} rows")
    again = run_pipeline(db, folder)
    print(f"second run: {'the same rows, and no more' if again == first else again}")

    found_sessions = spark.read.parquet(str(folder / "sessions"))
    traffic = spark.table("web.traffic")
    print(f"Spark reads {found_sessions.count():,} sessions and {traffic.count():,} rows of web.traffic:")
    traffic.groupBy("section", "plan").sum("clicks", "sales").orderBy("section", "plan").show()

    sessions_wanted, traffic_wanted = expected(events, plans)
    session_rows = found_sessions.select("user_id", "began", "ended", "clicks", "spent").collect()
    is_right = (
        again == first
        and sorted(map(tuple, session_rows)) == sorted(sessions_wanted)
        and sorted(map(tuple, traffic.collect())) == sorted(traffic_wanted)
    )
    print("plain Python computes the same rows" if is_right else "plain Python computes OTHER rows")
    spark.sql("DROP DATABASE web CASCADE")
    with suppress(OSError):
        Path("spark-warehouse").rmdir()  # Spark has made it for tables of its default database: there are none
    return is_right


def main() -> int:
    """Run on a master of Spark: two cores of this machine, or the one that the command line names."""
    master = sys.argv[1] if len(sys.argv) > 1 else "local[2]"
    # Or tsql.connect(spark=session), with a session that you have.
    with tempfile.TemporaryDirectory() as folder, tsql.connect(backend=f"spark={master}") as db:
        backend: Any = db.backend
        return 0 if run(db, backend.spark, Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
