"""Joins of lifetimes: how their time grows with the rows of a key.

    python -m bench.temporal_joins [--rows 40000] [--doublings 2] [--runs 3] [--only TEXT] [--no-check] [--json FILE]

Each case joins two tables at n, 2n, 4n .. rows, with 10 keys, one key and as many keys as rows, at the same density in
time: a row overlaps some 10 others, whatever the number of rows. So the answers grow with n, and so should the times.
The answers at n rows are compared with DuckDB's, which joins ranges, and cuts rows by window functions over the pairs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import tsql
from tsql.tpch.measure import difference

KEYS = {"10 keys": 10, "1 key": 1, "100 k keys": 100_000}
SECOND = 1_000_000
OPEN_ROWS = 20


@dataclass(frozen=True)
class Side:
    """How the rows of a table live: as the arguments of LIFETIME, and their end for DuckDB."""

    lifetime: str
    end: str


CONSTANT = Side("start => ts, duration => INTERVAL '10 seconds'", "ts + INTERVAL '10 seconds'")
ANY = Side("start => ts, end => te", "te")
OPEN = Side("start => ts, end => until", "coalesce(until, TIMESTAMP 'infinity')")
SHORT = Side("start => ts, duration => INTERVAL '50 milliseconds'", "ts + INTERVAL '50 milliseconds'")
SEQUENCED = "SEQUENCED VALIDTIME"
"""Both tables are valid from `ts` to `te`, as they declare."""


@dataclass(frozen=True)
class Case:
    """kind: how the sides are joined. on: the condition."""

    name: str
    kind: str
    left: Side = ANY
    right: Side = ANY
    on: str = "a.k = b.k"
    sequenced: bool = False

    @property
    def tsql(self) -> str:
        """The query in our dialect."""
        if self.sequenced:
            left, right = "pa a", "pb b"
        else:
            left, right = f"LIFETIME(a, {self.left.lifetime}) a", f"LIFETIME(b, {self.right.lifetime}) b"
        prefix = f"{SEQUENCED} " if self.sequenced else ""
        if self.kind in ("EXISTS", "NOT EXISTS"):
            return f"{prefix}SELECT a.id FROM {left} WHERE {self.kind} (SELECT 1 FROM {right} WHERE {self.on})"
        if self.kind in ("SEMI", "ANTI", "CLIP"):
            return f"{prefix}SELECT a.id FROM {left} {self.kind} JOIN {right} ON {self.on}"
        return f"{prefix}SELECT a.id, b.id AS other FROM {left} {self.kind} JOIN {right} ON {self.on}"

    @property
    def duckdb(self) -> str:
        """The same in DuckDB."""
        sides = [
            f"{name} AS (SELECT k, id, ts AS s, {side.end} AS e FROM {table} WHERE ts < {side.end})"
            for name, table, side in (("l", "a", self.left), ("r", "b", self.right))
        ]
        on = self.on.replace("a.", "l.").replace("b.", "r.")
        if self.kind == "CLIP":
            return (
                f"WITH {', '.join(sides)} SELECT l.id, l.s AS valid_from, {_shown('least(l.e, coalesce(r.s, l.e))')} "
                f"FROM l ASOF LEFT JOIN r ON {on} AND l.s < r.s"
            )
        pairs = (
            "pairs AS (SELECT l.id AS lid, r.id AS rid, greatest(l.s, r.s) AS s, least(l.e, r.e) AS e FROM l JOIN r "
            f"ON {on} AND l.s < r.e AND r.s < l.e)"
        )
        start = f"WITH {', '.join(sides)}, {pairs}, {_gaps('l')}, {_gaps('r')}, {_islands()}"
        span = f"s AS valid_from, {_shown('e')}"
        match self.kind:
            case "EXISTS" | "SEMI":
                return f"{start} SELECT id, {span} FROM islands"
            case "NOT EXISTS" | "ANTI":
                return f"{start} SELECT id, {span} FROM gaps_l"
        parts = [f"SELECT lid AS id, rid AS other, {span} FROM pairs"]
        if self.kind in ("LEFT", "FULL"):
            parts.append(f"SELECT id, NULL, {span} FROM gaps_l")
        if self.kind == "FULL":
            parts.append(f"SELECT NULL, id, {span} FROM gaps_r")
        return f"{start} {' UNION ALL '.join(parts)}"


def _shown(end: str) -> str:
    return f"CASE WHEN {end} < TIMESTAMP 'infinity' THEN {end} END AS valid_to"


def _gaps(side: str) -> str:
    """The parts of the rows of a side without a pair: what lies before a pair and after all that start earlier."""
    spans = f"SELECT {side}id AS id, s, e FROM pairs UNION ALL SELECT id, e, e FROM {side}"
    before = "max(p.e) OVER (PARTITION BY p.id ORDER BY p.s ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    return (
        f"gaps_{side} AS (SELECT id, since AS s, s AS e FROM (SELECT p.id, p.s, coalesce({before}, {side}.s) AS since "
        f"FROM ({spans}) p JOIN {side} USING (id)) WHERE since < s)"
    )


def _islands() -> str:
    """The parts of the left rows with a pair: from a start that nothing before it reaches to the next one."""
    before = "max(e) OVER (PARTITION BY lid ORDER BY s, rid ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    return (
        f"islands AS (SELECT lid AS id, min(s) AS s, max(e) AS e FROM (SELECT *, sum(first) OVER (PARTITION BY lid "
        "ORDER BY s, rid ROWS UNBOUNDED PRECEDING) AS island FROM "
        f"(SELECT *, coalesce({before} < s, true)::INT AS first FROM pairs)) GROUP BY lid, island)"
    )


MIXED = "a.k = b.k AND b.id > a.id"
CASES = (
    Case("inner, both constant", "INNER", CONSTANT, CONSTANT),
    Case("inner, one constant", "INNER", CONSTANT, ANY),
    Case("inner, any durations", "INNER"),
    Case("inner, some open", "INNER", OPEN, OPEN),
    Case("inner, no keys", "INNER", on="true"),
    Case("inner, no keys, constant", "INNER", CONSTANT, CONSTANT, on="true"),
    Case("left", "LEFT"),
    Case("left, both constant", "LEFT", CONSTANT, CONSTANT),
    Case("left, no keys", "LEFT", on="true"),
    Case("full", "FULL"),
    Case("exists", "EXISTS"),
    Case("semi", "SEMI", CONSTANT, CONSTANT),
    Case("not exists", "NOT EXISTS"),
    Case("not exists, both constant", "NOT EXISTS", CONSTANT, CONSTANT),
    Case("not exists, some open", "NOT EXISTS", OPEN, ANY),
    Case("not exists, many gaps", "NOT EXISTS", CONSTANT, SHORT),
    Case("exists, many pieces", "EXISTS", CONSTANT, SHORT),
    Case("left, many gaps", "LEFT", CONSTANT, SHORT),
    Case("not exists, later ids", "NOT EXISTS", on=MIXED),
    Case("left, later ids", "LEFT", on=MIXED),
    Case("anti", "ANTI"),
    Case("anti, no keys", "ANTI", on="true"),
    Case("sequenced", "INNER", sequenced=True),
    Case("sequenced, not exists", "NOT EXISTS", sequenced=True),
    Case("clip", "CLIP"),
    Case("clip, open", "CLIP", OPEN, OPEN),
)


def table(rows: int, keys: int, seed: int) -> pa.Table:
    """Rows at random times, so that a row overlaps 10 of its key. A few have no end (`until`)."""
    random = np.random.default_rng(seed)
    span = max(1, rows // min(keys, rows)) * SECOND
    starts = np.sort(random.integers(0, span, rows))
    ends = starts + random.integers(1, 20 * SECOND, rows)
    is_open = np.arange(rows) % max(1, rows // OPEN_ROWS) == 0
    times = pa.timestamp("us")
    return pa.table(
        {
            "k": pa.array(random.integers(0, keys, rows)),
            "id": pa.array(random.permutation(rows)),
            "ts": pa.array(starts, times),
            "te": pa.array(ends, times),
            "until": pa.array(ends, times, mask=is_open),
        }
    )


def is_sparse(case: Case, keys: int) -> bool:
    """Whether the answer grows with the rows: without keys, rows of many keys all live at the same time."""
    return case.on != "true" or keys <= KEYS["10 keys"]


def tables(rows: int, keys: int) -> dict[str, pa.Table]:
    """The two tables of one size."""
    return {"a": table(rows, keys, 1), "b": table(rows, keys, 2)}


def load(db: Any, found: dict[str, pa.Table]) -> None:
    """Register the tables, and the same ones as tables with a period."""
    for name, data in found.items():
        db.register(name, data)
        db.sql(f"DROP TABLE IF EXISTS p{name}")
        db.sql(
            f"CREATE TABLE p{name} (k BIGINT, id BIGINT, ts TIMESTAMP, te TIMESTAMP, PERIOD FOR valid_time (ts, te))"
        )
        db.sql(f"INSERT INTO p{name} SELECT k, id, ts, te FROM {name}")


def wrong(db: Any, case: Case, found: dict[str, pa.Table]) -> str | None:
    """Why an answer differs from DuckDB's, or None."""
    with duckdb.connect() as other:
        for name, data in found.items():
            other.register(name, data)
        expected = other.sql(case.duckdb).to_arrow_table()
    return difference(db.sql(case.tsql).arrow(), expected, False)


def seconds(db: Any, sql: str, runs: int) -> float:
    """The least CPU time of some runs, over all threads, after one that makes the kernels. Other work on the machine
    hardly changes it."""
    best = float("inf")
    db.sql(sql).arrow()
    for _ in range(runs):
        start = time.process_time()
        db.sql(sql).arrow()
        best = min(best, time.process_time() - start)
    return best


def main(args: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--doublings", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--keys", default="")
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(None if args is None else list(args))
    sizes = [options.rows << doubling for doubling in range(options.doublings + 1)]
    print(f"{'':36}{''.join(f'{rows:>12,}' for rows in sizes)}  growth")
    results: list[dict[str, Any]] = []
    for label, keys in ((label, keys) for label, keys in KEYS.items() if options.keys in label):
        times: dict[str, list[float]] = {}
        for rows in sizes:
            found = tables(rows, keys)
            with tsql.connect(threads=options.threads) as db:
                load(db, found)
                for case in (case for case in CASES if options.only in case.name and is_sparse(case, keys)):
                    reason = None if options.no_check or rows > sizes[0] else wrong(db, case, found)
                    if reason is not None:
                        print(f"{case.name}, {label}: {reason}", file=sys.stderr)
                        return 1
                    times.setdefault(case.name, []).append(seconds(db, case.tsql, options.runs))
        for name, taken in times.items():
            growth = [f"{after / before:.1f}x" for before, after in zip(taken, taken[1:], strict=False)]
            line = "".join(f"{1000 * one:>9.0f} ms" for one in taken)
            print(f"{f'{name}, {label}':36}{line}  {' '.join(growth)}", flush=True)
            results.append({"case": name, "keys": label, "rows": sizes, "seconds": taken})
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
