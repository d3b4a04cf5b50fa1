"""Steps, inputs of every kind for them, and the same in SQL: `test_provides.py` checks the claims of steps against
them."""

from __future__ import annotations

import datetime
from collections import Counter
from typing import Any

import pyarrow as pa

from tests.duck import empty_duckdb
from tests.planner.shards import Row
from tsql.kernels.expr.errors import PlanError
from tsql.planner.physical.check import check
from tsql.planner.physical.planfile import parse_plan
from tsql.planner.physical.step import PhysicalPlan

DAY = datetime.datetime(2024, 3, 1)
ROWS = 30


def minutes(number: int) -> datetime.datetime:
    return DAY + datetime.timedelta(minutes=number)


TABLES = {
    "t": pa.table(
        {
            "a": pa.array([None if i % 11 == 10 else i * 3 % 7 for i in range(ROWS)], pa.int64()),
            "b": pa.array([None if i % 13 == 12 else i * 5 % 4 for i in range(ROWS)], pa.int64()),
            "s": pa.array([f"n{i % 5}" for i in range(ROWS)]),
            "ts": pa.array([minutes(i * 7 % ROWS) for i in range(ROWS)], pa.timestamp("us")),
            "te": pa.array([minutes(1000) for _ in range(ROWS)], pa.timestamp("us")),
        }
    ),
    "u": pa.table(
        {
            "c": pa.array([0, 1, 2, 3, 5, None, 9, 1], pa.int64()),
            "d": pa.array([4, 5, 6, 7, 8, 9, 10, 11], pa.int64()),
            "ut": pa.array([minutes(i * 3) for i in range(8)], pa.timestamp("us")),
        }
    ),
}

COLUMNS = "a, b, s, ts, te"
SCAN = f"t = scan t columns=({COLUMNS})"
SCAN_U = "u = scan u columns=(c, d, ut)"
T = f"SELECT {COLUMNS} FROM t"

BASES = {
    "scanned": (f"{SCAN}\nx = filter t where=(true)", T),
    "gathered": (f"{SCAN}\nx = gather t", T),
    "placed": (f"{SCAN}\nk = rekey t key=(a)\nx = redistribute k", T),
    "placed by two": (f"{SCAN}\nk = rekey t key=(b, a)\nx = redistribute k shards=4", T),
    "placed, swapped": (
        f"{SCAN}\nk = rekey t key=(a)\np = redistribute k\nx = project p a=b b=a s=s ts=ts te=te",
        f"SELECT b AS a, a AS b, s, ts, te FROM ({T})",
    ),
    "keyed, swapped": (
        f"{SCAN}\nk = rekey t key=(a)\np = project k a=b b=a s=s ts=ts te=te\nx = redistribute p",
        f"SELECT b AS a, a AS b, s, ts, te FROM ({T})",
    ),
    "keyed by an equal": (
        (
            f"{SCAN}\n{SCAN_U}\nk = rekey t key=(a)\ne = broadcast u\nj = hash_join k e kind=inner on=(a = c) "
            "build=right\nl = rekey j key=(c)\np = project l a=a b=b s=s ts=ts te=te\nx = redistribute p"
        ),
        f"SELECT {COLUMNS} FROM t JOIN u ON a = c",
    ),
    "placed by an equal": (
        (
            f"{SCAN}\n{SCAN_U}\nk = rekey t key=(a)\np = redistribute k\ne = broadcast u\nj = hash_join p e "
            "kind=inner on=(a = c) build=right\nx = project j b=b s=s ts=ts te=te a=c"
        ),
        "SELECT b, s, ts, te, c AS a FROM t JOIN u ON a = c",
    ),
    "placed by the left": (
        (
            f"{SCAN}\n{SCAN_U}\nk = rekey t key=(a)\np = redistribute k\nl = rekey u key=(c)\nq = redistribute "
            "l\nx = hash_join p q kind=inner on=(a = c) build=right"
        ),
        f"SELECT {COLUMNS}, c, d, ut FROM t JOIN u ON a = c",
    ),
    "copies": (f"{SCAN}\nx = broadcast t", T),
    "copies between machines": (f"{SCAN}\nx = broadcast t scope=global shards=5", T),
    "copies, keyed": (f"{SCAN}\nr = broadcast t\nx = rekey r key=(a)", T),
    "directed": (f"{SCAN}\nx = multicast t to=(coalesce(a % 3, 0))", T),
    "directed twice": (f"{SCAN}\nx = multicast t to=(0, coalesce(b % 2, 0) + 1)", T),
    "one copy": (f"{SCAN}\nr = broadcast t shards=1\nx = rekey r key=(a)", T),
    "even": (f"{SCAN}\nx = reshard t shards=4", T),
    "sorted": (f"{SCAN}\ng = gather t\nx = sort g by=(a desc nulls last, b asc nulls first)", T),
    "first rows": (f"{SCAN}\nx = sort t phase=partial by=(a asc nulls last) limit=(100)", T),
    "first rows, placed": (
        (
            f"{SCAN}\nk = rekey t key=(a)\np = redistribute k shards=4\nx = sort p phase=partial by=(b asc "
            "nulls last) limit=(100)"
        ),
        T,
    ),
    "ranges": (
        "x = scan o columns=(a, b, s, ts, te) ranges=a shards=4",
        "SELECT a, b, s, ts, te FROM t WHERE a IS NOT NULL",
    ),
}

OTHERS = {
    "everywhere": f"{SCAN_U}\nz = broadcast u",
    "everywhere, filtered": f"{SCAN_U}\nv = broadcast u\nz = filter v where=(d > 0)",
    "placed": f"{SCAN_U}\nw = rekey u key=(c)\nz = redistribute w",
    "placed by four": f"{SCAN_U}\nw = rekey u key=(c)\nz = redistribute w shards=4",
    "grouped": (
        f"{SCAN_U}\nw = rekey u key=(c)\nv = redistribute w\nq = aggregate v phase=partial by=(c, d, ut)\nz = "
        "filter q where=(true)"
    ),
    "gathered": f"{SCAN_U}\nz = gather u",
    "directed": f"{SCAN_U}\nz = multicast u to=(0, 1, 2)",
}

STEPS: dict[str, tuple[str, str | None]] = {
    "filter": ("y = filter x where=(b > 0)", "SELECT * FROM x WHERE b > 0"),
    "filter by the host": (
        "y = filter x where=(regexp_matches(s, 'n[0-2]'))",
        "SELECT * FROM x WHERE regexp_matches(s, 'n[0-2]')",
    ),
    "project": ("y = project x b=a a=b", "SELECT a AS b, b AS a FROM x"),
    "project, computed": ("y = project x a=(a + 1) b=b", "SELECT a + 1 AS a, b FROM x"),
    "project by the host": (
        "y = project x a=a s=regexp_replace(s, 'n', 'm')",
        "SELECT a, regexp_replace(s, 'n', 'm') AS s FROM x",
    ),
    "series": ("y = series x column=i from=(0) to=(b) by=(1)", "SELECT x.*, i FROM x, unnest(range(0, b)) AS r(i)"),
    "expand": (
        "y = expand x keys=(a, b) sets=((a), (b))",
        (
            "SELECT a, NULL::BIGINT AS b, * EXCLUDE (a, b), 2::BIGINT AS grouping_id, 0::BIGINT AS "
            "grouping_set FROM x UNION ALL SELECT NULL, b, * EXCLUDE (a, b), 1, 1 FROM x"
        ),
    ),
    "replicate": ("y = replicate x times=(b)", "SELECT x.* FROM x, unnest(range(0, b)) AS r(i)"),
    "sample": ("y = sample x method=bernoulli percent=100.0 seed=1", "SELECT * FROM x"),
    "sample of rows": ("y = sample x method=reservoir rows=1000 seed=1", "SELECT * FROM x"),
    "rekey": ("y = rekey x key=(b)", "SELECT * FROM x"),
    "redistribute": ("y = redistribute x", "SELECT * FROM x"),
    "redistribute by another": ("y1 = rekey x key=(b)\ny = redistribute y1 shards=2", "SELECT * FROM x"),
    "redistribute groups": (
        "y1 = aggregate x phase=partial by=(b, a)\ny2 = rekey y1 key=(a)\ny = redistribute y2 shards=2",
        None,
    ),
    "reshard": ("y = reshard x", "SELECT * FROM x"),
    "broadcast": ("y = broadcast x", "SELECT * FROM x"),
    "multicast": ("y = multicast x to=(1)", "SELECT * FROM x"),
    "arrange": ("y = arrange x by=(b desc nulls last, a asc nulls first)", "SELECT * FROM x"),
    "sort of arranged": (
        "y1 = arrange x by=(a desc nulls first, b asc nulls last) shards=4\n"
        "y = sort y1 by=(a desc nulls first, b asc nulls last)",
        "SELECT * FROM x",
    ),
    "gather of arranged": (
        "y1 = arrange x by=(b asc nulls last) shards=3\ny2 = sort y1 by=(b asc nulls last)\n"
        "y3 = project y2 q=b a=a\ny = gather y3",
        "SELECT b AS q, a FROM x",
    ),
    "gather": ("y = gather x", "SELECT * FROM x"),
    "gather of filtered": ("y1 = filter x where=(b > 0)\ny = gather y1", "SELECT * FROM x WHERE b > 0"),
    "gather of projected": (
        "y1 = project x q=(a + b)\ny2 = replicate y1 times=(2)\ny = gather y2",
        "SELECT a + b AS q FROM x UNION ALL SELECT a + b FROM x",
    ),
    "gather of two uses": (
        "y1 = project x q=a\ny2 = gather y1\ny3 = gather y1\ny = union y2 y3",
        "SELECT a AS q FROM x UNION ALL SELECT a FROM x",
    ),
    "sort": ("y = sort x by=(b desc nulls last, a asc nulls first)", "SELECT * FROM x"),
    "sort, computed": ("y = sort x by=(b asc nulls last, a + b asc nulls first)", "SELECT * FROM x"),
    "first rows": ("y = sort x phase=partial by=(b asc nulls last) limit=(1000)", "SELECT * FROM x"),
    "top": ("y = sort x by=(b asc nulls last) limit=(1000)", "SELECT * FROM x"),
    "limit": ("y = limit x count=(1000)", "SELECT * FROM x"),
    "aggregate": ("y = aggregate x by=(a) n=count(*)", "SELECT a, count(*) AS n FROM x GROUP BY a"),
    "aggregate, renamed": (
        "y = aggregate x by=(b=a, a=b) n=count(*)",
        "SELECT a AS b, b AS a, count(*) AS n FROM x GROUP BY ALL",
    ),
    "aggregate by an equal": ("y = aggregate x by=(c) a=count(*)", "SELECT c, count(*) AS a FROM x GROUP BY c"),
    "aggregate, partial": ("y = aggregate x phase=partial by=(a, b) n=count(*)", None),
    "aggregate, merged": (
        "y1 = aggregate x phase=partial by=(a, b) n=count(*)\ny = aggregate y1 phase=merge by=(a) n=count(*)",
        None,
    ),
    "aggregate, final": (
        "y1 = aggregate x phase=partial by=(a, b) n=count(*)\ny = aggregate y1 phase=final by=(a) n=count(*)",
        "SELECT a, count(*) AS n FROM x GROUP BY a",
    ),
    "aggregate all": ("y = aggregate x by=() n=count(*)", "SELECT count(*) AS n FROM x"),
    "aggregate, whole": ("y = aggregate x by=(b=a) a=median(b)", "SELECT a AS b, median(b) AS a FROM x GROUP BY a"),
    "window": (
        "y = window x by=(a) order=(b asc nulls last) n=count(*)",
        "SELECT *, count(*) OVER (PARTITION BY a ORDER BY b NULLS LAST) AS n FROM x",
    ),
    "window over all": (
        "y = window x by=() order=(b asc nulls last) n=count(*)",
        "SELECT *, count(*) OVER (ORDER BY b NULLS LAST) AS n FROM x",
    ),
    "snapshot": ("y = snapshot x by=(a) lifetime=(te, ta) span=(f, g) n=count(*)", None),
    "snapshots": (
        (
            "y1 = project x a=a b=b f0=te g0=(te + INTERVAL 1 HOUR)\ny = snapshot y1 by=(a) lifetime=(f0, g0) "
            "span=(f, g) b=count(*)"
        ),
        "SELECT a, count(*) AS b, min(te) AS f, min(te) + INTERVAL 1 HOUR AS g FROM x GROUP BY a",
    ),
    "snapshots by an equal": (
        (
            "y1 = project x a=a c=c f0=te g0=(te + INTERVAL 1 HOUR)\ny = snapshot y1 by=(c) lifetime=(f0, g0) "
            "span=(f, g) a=count(*)"
        ),
        "SELECT c, count(*) AS a, min(te) AS f, min(te) + INTERVAL 1 HOUR AS g FROM x GROUP BY c",
    ),
    "combine": (
        "y = combine x kind=rows over=rows by=(a) slide=1 size=1 first=ts start=f end=g id=i n=count(*)",
        (
            "SELECT a, ts AS f, ts + INTERVAL 1 MICROSECOND AS g, row_number() OVER (PARTITION BY a ORDER BY "
            "ts) - 1 AS i, 1::BIGINT AS n FROM x"
        ),
    ),
    "combine by an equal": (
        "y = combine x kind=rows over=rows by=(c) slide=1 size=1 first=ts start=f end=g id=i a=count(*)",
        (
            "SELECT c, ts AS f, ts + INTERVAL 1 MICROSECOND AS g, row_number() OVER (PARTITION BY c ORDER BY "
            "ts) - 1 AS i, 1::BIGINT AS a FROM x"
        ),
    ),
    "match": (
        "y = match x by=(a) order=(ts asc nulls last) pattern='A' output=one define=(A=(true)) measures=(m=last(b))",
        "SELECT a, b AS m FROM x",
    ),
    "match, all rows": (
        "y = match x by=(a) order=(ts asc nulls last) pattern='A' output=all define=(A=(true)) measures=(m=last(b))",
        "SELECT *, b AS m FROM x",
    ),
    "union": ("y1 = project x a=a\ny2 = project x a=b\ny = union y1 y2", "SELECT a FROM x UNION ALL SELECT b FROM x"),
    "recursive": (
        (
            "y1 = project x i=b\nw = working table=r columns=(i BIGINT)\nn = filter w where=(i < 3)\nm = "
            "project n i=(i + 1)\ny = recursive y1 m table=r"
        ),
        (
            "SELECT * FROM (WITH RECURSIVE r AS (SELECT b AS i FROM x UNION ALL SELECT i + 1 FROM r WHERE i < "
            "3) SELECT i FROM r)"
        ),
    ),
}

JOINS: dict[str, tuple[str, str]] = {
    **{
        f"{kind}, {build}": (
            f"y = hash_join x z kind={kind} on=(a = c) build={build}",
            f"SELECT * FROM x {kind} JOIN u ON a = c",
        )
        for kind in ("inner", "left", "full", "semi", "anti")
        for build in ("left", "right")
    },
    "mark": (
        "y = hash_join x z kind=mark on=(a = c) build=right mark=m",
        "SELECT x.*, a IN (SELECT c FROM u) AS m FROM x",
    ),
    "single": ("y = hash_join x z kind=single on=(a = d) build=right", "SELECT * FROM x LEFT JOIN u ON a = d"),
    "merge": ("y = merge_join x z kind=inner on=(a = c) build=right", "SELECT * FROM x JOIN u ON a = c"),
    "merge, left": ("y = merge_join x z kind=left on=(a = c) build=left", "SELECT * FROM x LEFT JOIN u ON a = c"),
    "range": (
        "y = hash_join x z kind=left range=(c >= a, c < b) build=right",
        "SELECT * FROM x LEFT JOIN u ON c >= a AND c < b",
    ),
    "nearest": (
        "y = asof_join x z kind=left on=(a = c) at=(ts >= ut)",
        "SELECT * FROM x ASOF LEFT JOIN u ON a = c AND ts >= ut",
    ),
    "by position": (
        (
            "y1 = gather x\ny2 = sort y1 by=(ts asc nulls last, a asc nulls last, b asc nulls last)\n"
            "y3 = gather z\ny4 = sort y3 by=(d asc nulls last)\ny = positional_join y2 y4"
        ),
        "SELECT * FROM (SELECT * FROM x ORDER BY ts, a, b) POSITIONAL JOIN (SELECT * FROM u ORDER BY d)",
    ),
    "then grouped": (
        "y1 = hash_join x z kind=inner on=(a = c) build=right\ny = aggregate y1 by=(c) a=count(*)",
        "SELECT c, count(*) AS a FROM x JOIN u ON a = c GROUP BY c",
    ),
    "then projected": (
        "y1 = hash_join x z kind=inner on=(a = c) build=right\ny = project y1 a=c q=d",
        "SELECT c AS a, d AS q FROM x JOIN u ON a = c",
    ),
}


def oracle() -> Any:
    """DuckDB with the tables."""
    found = empty_duckdb()
    for name, table in TABLES.items():
        found.register(f"{name}_arrow", table)
        found.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_arrow")
    return found


def bound(db: Any, steps: str, target: str = "local") -> PhysicalPlan | None:
    """The plan whose last step is `y`, or None if it is refused. Its check is that of a plan with y alone."""
    text = f"plan version 1\ntarget {target} shards=3\n{steps}\noutput y ()\n"
    try:
        plan = parse_plan(text, db.catalog)
        check(plan, text)
    except PlanError as error:
        return plan if error.message.startswith("the output y has") else None
    return plan


def expected_rows(oracle: Any, base: str, sql: str | None, names: tuple[str, ...]) -> Counter[Row] | None:
    if sql is None:
        return None
    shown = ", ".join(f'"{name}"' for name in names)
    return Counter(oracle.execute(f"SELECT {shown} FROM (WITH x AS ({base}) {sql})").fetchall())
