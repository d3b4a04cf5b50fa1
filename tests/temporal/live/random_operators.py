"""Random queries for the live operators that hold rows in the order of time: window functions, patterns, lifetimes.

`random_live.py` asks them. Tables are `e` and `o` (id, k, s, v, ts) and `p` (id, k, v, vs, ve)."""

from __future__ import annotations

from random import Random


def interval(random: Random, low: int = 1, high: int = 20) -> str:
    return (
        f"INTERVAL '{random.randint(low, high)} "
        f"{random.choice(('microseconds', 'milliseconds', 'seconds', 'seconds', 'seconds'))}'"
    )


def condition(random: Random) -> str:
    return random.choice(
        (
            "v > 0",
            "k IS NOT NULL",
            "v > (SELECT avg(v) FROM o)",
            "k IN (SELECT k FROM names)",
            "k NOT IN (SELECT k FROM names WHERE k IS NOT NULL)",
            "id NOT IN (SELECT v FROM o)",
            "ts > TIMESTAMP '1970-01-01'",
        )
    )


def _over_rows(random: Random) -> str:
    """A window function over rows in a defined order."""
    call = random.choice(
        (
            "row_number()", "rank()", "dense_rank()", "lag(v)", "lag(v, 2, 0)", "lead(v)", "lead(id, 2)",
            "lag(v IGNORE NULLS)", "first_value(v)", "last_value(id)", "ntile(2)", "lead(ts, 0)", "lag(id, -1)",
        )
    )  # fmt: skip
    if random.random() < 0.6:
        frame = random.choice(
            (
                "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
                "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", "ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING",
                "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING", "ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING",
                "ROWS BETWEEN UNBOUNDED PRECEDING AND 2 FOLLOWING", "ROWS BETWEEN 2 PRECEDING AND 2 PRECEDING",
                "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW",
                "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
            )
        )  # fmt: skip
        call = random.choice(
            ("sum(v)", "count(*)", "min(v)", "max(s)", "avg(v)", "median(v)", "first_value(id)", "nth_value(id, 2)")
        )
        keys = random.choice(("PARTITION BY k ", "PARTITION BY k, s ", ""))
        return f"{call} OVER ({keys}ORDER BY ts, id {frame})"
    keys = random.choice(("PARTITION BY k ", "PARTITION BY s ", ""))
    return f"{call} OVER ({keys}ORDER BY {random.choice(('ts, id', 'ts, id', 'ts NULLS FIRST, id', 'ts DESC, id'))})"


def _over_times(random: Random) -> str:
    """An aggregate over a span of time."""
    iv, other = interval(random), interval(random)
    frame = random.choice(
        (
            "UNBOUNDED PRECEDING AND CURRENT ROW", f"{iv} PRECEDING AND CURRENT ROW", "CURRENT ROW AND CURRENT ROW",
            f"{iv} PRECEDING AND {other} FOLLOWING", f"CURRENT ROW AND {iv} FOLLOWING",
            f"UNBOUNDED PRECEDING AND {iv} FOLLOWING", f"UNBOUNDED PRECEDING AND {iv} PRECEDING",
        )
    )  # fmt: skip
    call = random.choice(("sum(v)", "count(*)", "min(v)", "max(s)", "avg(v)", "median(v)", "count(DISTINCT s)"))
    where = random.choice(("", "", " FILTER (WHERE v > 0)"))
    keys = random.choice(("PARTITION BY k ", ""))
    return f"{call}{where} OVER ({keys}ORDER BY ts RANGE BETWEEN {frame})"


def over(random: Random) -> str:
    """A query with window functions over rows that come in time."""
    calls = [random.choice((_over_rows, _over_rows, _over_times))(random) for _ in range(random.randint(1, 3))]
    shown = ", ".join(f"{call} AS w{number}" for number, call in enumerate(calls))
    table = random.choice(("e", "e", "o", f"(SELECT * FROM e WHERE {condition(random)})"))
    match random.randrange(3):
        case 0:
            return (
                f"SELECT id, k, window_start, row_number() OVER (PARTITION BY window_start{random.choice(('', ', k'))} "
                f"ORDER BY v DESC, id) AS place, sum(v) OVER (PARTITION BY window_end) AS s FROM "
                f"TUMBLE({table}, ts, {interval(random)}) QUALIFY place <= {random.randint(1, 3)}"
            )
        case 1:
            if "max(s)" not in calls[0] and "ts" not in calls[0].split(" OVER")[0]:
                return (
                    f"SELECT window_start, sum(x) AS x, count(*) AS n FROM TUMBLE((SELECT ts, {calls[0]} AS x FROM "
                    f"{table} q WHERE id IS NOT NULL), ts, {interval(random)}) GROUP BY window_start"
                )
    return f"SELECT id, k, ts, {shown} FROM {table} q"


def patterns(random: Random) -> str:
    """Matches of a row pattern."""
    pattern = random.choice(
        (
            "S DOWN+ UP+", "S DOWN+? UP*? UP", "(DOWN | UP UP) S", "S UP{1,2} DOWN{,2}?", "S? DOWN UP?", "UP*",
            "^ S UP*", "S DOWN* $", "S (UP | DOWN)*", "S DOWN* UP | S", "(S UP?){2}", "S FAR*", "DOWN BIG*? UP",
            "(UP | S DOWN){1,3}", "S+? BIG", "DOWN* UP*",
        )
    )  # fmt: skip
    output = random.choice(("", "", "ALL ROWS PER MATCH ", "ALL ROWS PER MATCH OMIT EMPTY MATCHES "))
    skip = random.choice(("", "", "AFTER MATCH SKIP TO NEXT ROW "))
    within = random.choice(("", f" WITHIN {interval(random)}"))
    keys = random.choice(("PARTITION BY k ", "PARTITION BY k, s ", ""))
    measures = "FIRST(id) AS first_id, LAST(id) AS last_id, count(*) AS n, LAST(ts) AS at"
    measures += random.choice(("", ", MATCH_NUMBER() AS number")) + random.choice(("", ", CLASSIFIER() AS symbol"))
    shown = "first_id, last_id, n, at" + ", number" * ("number" in measures) + ", symbol" * ("symbol" in measures)
    define = (
        "DOWN AS v < PREV(v), UP AS v > PREV(v), FAR AS NEXT(v, 2) > v OR NEXT(id) IS NULL, "
        "BIG AS v > FIRST(v) AND sum(v) < 40"
    )
    named = ", ".join(part for part in _defined(define) if part.split(" ")[0] in pattern.replace("?", " "))
    table = random.choice(("e", "o"))
    if random.random() < 0.2:
        table, keys = f"TUMBLE({table}, ts, {interval(random, 5)})", "PARTITION BY k, window_start "
    return (
        f"SELECT {shown} FROM {table} MATCH_RECOGNIZE ({keys}ORDER BY ts, id MEASURES {measures} "
        f"{output}{skip}PATTERN ({pattern}){within} DEFINE {named or 'S AS v IS NOT NULL'})"
    )


def _defined(define: str) -> list[str]:
    parts = define.split(", ")
    found: list[str] = []
    for part in parts:
        if " AS " in part:
            found.append(part)
        else:
            found[-1] += f", {part}"
    return found


def lives(random: Random, name: str) -> str:
    one, other = interval(random), interval(random)
    return random.choice(
        (
            "LIFETIME(p, start => vs, \"end\" => ve)", f"SLIDE({random.choice(('e', 'o'))}, ts, {one})",
            f"EXTEND(SLIDE(e, ts, {one}), {other})", f"SHIFT(SLIDE(o, ts, {one}), {other})",
            f"CLIP(LIFETIME(p, start => vs, \"end\" => ve), {one})", f"STITCH(SLIDE(e, ts, {one}))",
            (f"QUANTIZE(SLIDE(e, ts, {one}), slide => INTERVAL '2 seconds', size => INTERVAL '2 seconds')"),
            f"POINT_AT_END(SLIDE(e, ts, {one}))",
        )
    ) + f" {name}"  # fmt: skip


def pieces(random: Random) -> str:
    """Temporal relations that are cut, merged and set against each other."""
    one, other = lives(random, "l"), lives(random, "r")
    on = random.choice(
        (
            "l.k = r.k", "l.k = r.k", "l.k = r.k AND l.v = r.v", "l.k = r.k AND r.v > l.v", "r.k > l.k",
            "l.k = r.k AND (l.v = r.v OR r.v > 2)", "l.k = r.k AND l.v > 0", "l.k = r.k AND r.v > 0", "l.v <> r.v",
        )
    )  # fmt: skip
    match random.randrange(10):
        case 0 | 1:
            no = random.choice(("NOT ", "NOT ", ""))
            return (
                f"SELECT l.id, l.valid_from AS f, valid_from, valid_to FROM {one} WHERE {no}EXISTS (SELECT 1 FROM "
                f"{other} WHERE {on})"
            )
        case 2:
            kind = random.choice(("LEFT ", "LEFT ", "FULL ", "RIGHT "))
            return f"SELECT l.id, r.id AS other, valid_from, valid_to FROM {one} {kind}JOIN {other} ON {on}"
        case 3:
            other = random.choice((other, other, "e r", "o r"))
            return f"SELECT l.id, valid_from, valid_to FROM {one} CLIP JOIN {other} ON {on}"
        case 4:
            both = random.choice(("UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"))
            return f"SELECT k, v FROM {one} {both} SELECT k, v FROM {other}"
        case 5:
            return f"SELECT DISTINCT {random.choice(('k', 'k, v', 'v'))} FROM {one}"
        case 6:
            return f"SELECT * FROM STITCH((SELECT k, v FROM {one}))"
        case 7 | 8:
            return instants(random)
    calls = random.choice(("count(DISTINCT v) AS n, median(v) AS m", "median(v) AS m, count(*) AS n"))
    return f"SELECT k, {calls} FROM {one} GROUP BY k"


def instants(random: Random) -> str:
    """QUALIFY and LIMIT of the rows alive at each instant. What comes first depends on no order of equal rows."""
    one = lives(random, "l")
    order = random.choice(("v, k", "k DESC, v", "v DESC NULLS LAST, k", "valid_from, v, k", "v + k"))
    keys = random.choice(("", "PARTITION BY k ", "PARTITION BY k, v "))
    if random.random() < 0.3:
        limit = random.choice(("LIMIT 1", "LIMIT 2", "LIMIT 2 OFFSET 1", "OFFSET 2"))
        rows = f"(SELECT k, v, count(*) AS n FROM {one} GROUP BY k, v ORDER BY n, k, v {limit})"
        return random.choice((f"SELECT k, v, n FROM {rows} q", f"SELECT k, count(*) AS m FROM {rows} q GROUP BY k"))
    kept = random.choice(
        (
            f"rank() OVER ({keys}ORDER BY {order}) <= 2", f"dense_rank() OVER ({keys}ORDER BY {order}) = 2",
            f"count(*) OVER ({keys.strip()}) > 1", f"v > avg(v) OVER ({keys.strip()})",
            f"rank() OVER ({keys}ORDER BY {order}) = 1 AND count(*) OVER (PARTITION BY k) < 4",
        )
    )  # fmt: skip
    return f"SELECT id, k, v FROM {one} QUALIFY {kept}"
