"""Plans with an edit that a person might make by mistake, and what must come of them.

A mutant is refused with its line, or it runs; then its rows do not depend on the number of shards or on the backend:
they are those of the same plan on one shard in the interpreter. Nothing ends with an internal error, and nothing runs
without end.

    python -m tests.plans.mutants CASES [SEED]      runs as many as one likes, and prints what it finds
"""

from __future__ import annotations

import re
import sys
import threading
import time
import traceback
from collections import Counter
from random import Random
from typing import Any

import tsql
from tests.planner.support import session
from tests.plans.queries import QUERIES
from tests.plans.random_steps import on_one_shard
from tsql.kernels.expr.errors import CancelledError, OutOfMemoryError, TsqlError

MORE = {
    "joins": "SELECT a.ad_id, b.cost FROM clicks a JOIN clicks b ON a.user_id = b.price WHERE a.cost < 9",
    "left join": "SELECT a.ad_id, b.cost FROM clicks a LEFT JOIN clicks b ON a.user_id = b.price AND b.cost > 5",
    "full join": "SELECT a.ad_id, b.cost FROM clicks a FULL JOIN nothing b ON a.user_id = b.price",
    "semi join": "SELECT ad_id FROM clicks WHERE user_id IN (SELECT price FROM clicks WHERE cost < 20)",
    "mark join": "SELECT ad_id, user_id IN (SELECT price FROM clicks) AS m FROM clicks",
    "single join": "SELECT ad_id, (SELECT max(cost) FROM clicks b WHERE b.user_id = a.price) AS m FROM clicks a",
    "range join": (
        "SELECT a.ad_id, b.user_id FROM clicks a JOIN clicks b ON a.price BETWEEN b.price AND b.price + 1 "
        "AND b.cost < 3"
    ),
    "intervals": (
        "SELECT a.ad_id, b.user_id FROM clicks a JOIN clicks b ON a.price = b.price AND a.ad_id < b.cost AND b.ad_id "
        "< a.user_id"
    ),
    "nearest": "SELECT a.ad_id, b.cost FROM clicks a ASOF JOIN clicks b ON a.user_id = b.user_id AND a.ts >= b.ts",
    "hops": (
        "SELECT ad_id, window_start, count(*) AS n FROM HOP(clicks, ts, INTERVAL '1 hour', INTERVAL '3 "
        "hours') GROUP BY ad_id, window_start, window_end"
    ),
    "tumble": (
        "SELECT window_start, sum(price) AS s FROM TUMBLE(clicks, ts, INTERVAL '1 day') GROUP BY "
        "window_start, window_end"
    ),
    "sessions": (
        "SELECT ad_id, window_start, count(*) AS n FROM SESSION(clicks PARTITION BY ad_id, ts, gap => "
        "INTERVAL '1 hour') GROUP BY ad_id, window_start, window_end"
    ),
    "snapshots": "SELECT ad_id, count(*) AS n FROM SLIDE(clicks, ts, INTERVAL '2 hours') GROUP BY ad_id",
    "recursion": (
        "WITH RECURSIVE r(i, j) AS (SELECT 1, 0 UNION ALL SELECT i + 1, j + i FROM r WHERE i < 9) SELECT i, "
        "count(*) AS n FROM r JOIN clicks ON i = price GROUP BY i"
    ),
    "series": "SELECT ad_id, i FROM clicks, range(0, price) AS s(i) WHERE cost < 2",
    "sample": "SELECT ad_id FROM clicks USING SAMPLE 50% (bernoulli, 7)",
    "pattern": (
        "SELECT * FROM clicks MATCH_RECOGNIZE (PARTITION BY ad_id ORDER BY ts MEASURES count(*) AS n, "
        "last(B.price) AS p PATTERN (A B+) DEFINE B AS B.price > prev(B.price))"
    ),
    "running": (
        "SELECT ad_id, sum(price) OVER (PARTITION BY ad_id ORDER BY ts) AS s, lag(cost) OVER (PARTITION BY "
        "ad_id ORDER BY ts) AS l FROM clicks"
    ),
    "broadcast": (
        "SELECT /*+ BROADCAST(b), JOIN(a, b, 'hash') */ a.ad_id, b.cost FROM clicks a JOIN clicks b ON "
        "a.user_id = b.price WHERE b.cost < 9"
    ),
    "redistribute": (
        "SELECT /*+ REDISTRIBUTE(a, user_id), REDISTRIBUTE(b, price) */ a.ad_id, b.cost FROM clicks a JOIN "
        "clicks b ON a.user_id = b.price WHERE b.cost < 9"
    ),
    "first values": "SELECT ad_id, arg_max(code, ts) AS c, avg(price) AS m FROM clicks GROUP BY ad_id",
    "values": "SELECT x, y::DECIMAL(6,2) AS z FROM (VALUES (1, 2.5, 'a'), (2, NULL, 'b')) AS v(x, y, s)",
}

VALUES = ("0", "1", "-1", "3", "0.5", "2.5", "'a'", "NULL", "true", "9223372036854775807", "-9223372036854775808",
          "99999999999999999999", "1e400", "()", "((1))", "(a", "x", "*", "count(*)",
          "CAST(NULL AS VARCHAR)", "CAST(2 AS HUGEINT)", "CAST(2 AS UBIGINT)", "CAST(0.1 AS DOUBLE)",
          "TIMESTAMP '2024-03-01'", "INTERVAL 1 MONTH", "DATE '2024-03-01'", "'NaN'::DOUBLE", "random()")  # fmt: skip
TYPES = (
    "INTEGER",
    "BIGINT",
    "VARCHAR",
    "DOUBLE",
    "DECIMAL(6,2)",
    "DECIMAL(30,3)",
    "TIMESTAMP",
    "DATE",
    "BOOLEAN",
    "HUGEINT",
    "UTINYINT",
    "NULL",
    "INTERVAL",
    "BLOB",
)
WORDS = (
    "inner left full semi anti mark single", "left right", "yes no", "partial merge final complete", "local global",
    "bernoulli system reservoir", "one all matched unmatched", "hop cumulate session rows", "any in_order none",
    "states rows", "asc desc", "first last", "count sum min max avg median first", "hash_join merge_join asof_join",
    "redistribute reshard broadcast gather", "read send collect",
    "filter project aggregate sort limit window union expand replicate",
    "branch select",
)  # fmt: skip
ALIKE = {word: group.split() for group in WORDS for word in group.split()}
BETWEEN = (
    "gather {x}", "broadcast {x}", "broadcast {x} scope=global", "broadcast {x} scope=global how=read",
    "broadcast {x} scope=global how=collect", "reshard {x}", "reshard {x} shards=2",
    "rekey {x} key=({c})", "redistribute {x}", "multicast {x} to=(0)", "multicast {x} to=(0, 1)",
    "filter {x} where=({c} IS NOT NULL)", "project {x} {c}={d} {d}={c}", "project {x} {c}={c}",
    "expand {x} keys=({c}, {d}) sets=(({c}), ({d}))", "replicate {x} times=(2)",
    "series {x} column=i from=(0) to=(2) by=(1)", "sort {x} by=({c} asc nulls last)", "limit {x} count=(7)",
    "aggregate {x} by=({c}, {d})", "aggregate {x} phase=partial by=({c}) {d}=count(*)",
    "window {x} by=({c}) order=() w=count(*)", "sample {x} method=bernoulli percent=50.0 seed=3", "union {x} {x}",
    "limit {x} count=({v})", "replicate {x} times=({v})", "hash_join {x} {x} kind=semi on=({c} = {c}) build=right",
)  # fmt: skip
NAME = re.compile(r'[A-Za-z_]\w*|"(?:[^"]|"")*"')


def mutate(text: str, random: Random) -> str:
    """One to three edits of the steps of a plan."""
    head, _, body = text.partition("\n\n")
    lines = [line for line in body.split("\n") if line and not line.startswith("#")]
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        lines = random.choice(EDITS)(lines, random)
    return head + "\n\n" + "\n".join(lines) + "\n"


def _step(lines: list[str], random: Random) -> int:
    return random.randrange(len(lines))


def _names(lines: list[str]) -> list[str]:
    return [name for line in lines for name in NAME.findall(re.sub(r"'[^']*'", "", line))]


def swap_name(lines: list[str], random: Random) -> list[str]:
    """Another name of the plan in the place of one: a column, a step, a word."""
    at = _step(lines, random)
    places = list(NAME.finditer(lines[at]))
    if not places:
        return lines
    place = random.choice(places)
    other = random.choice(ALIKE.get(place.group(), _names(lines)) if random.random() < 0.5 else _names(lines))
    return [*lines[:at], lines[at][: place.start()] + other + lines[at][place.end() :], *lines[at + 1 :]]


def change_value(lines: list[str], random: Random) -> list[str]:
    """Another value of an attribute, or of a number within it."""
    at = _step(lines, random)
    places = list(re.finditer(r"(?<==)\([^()]*\)|(?<==)[\w*]+|\b\d+(\.\d+)?\b|CAST\([^()]*\)", lines[at]))
    if not places:
        return lines
    place, value = random.choice(places), random.choice(VALUES)
    value = f"({value})" if place.group().startswith("(") and random.random() < 0.8 else value
    return [*lines[:at], lines[at][: place.start()] + value + lines[at][place.end() :], *lines[at + 1 :]]


def change_list(lines: list[str], random: Random) -> list[str]:
    """An item of a list twice, not at all, or at another place."""
    at = _step(lines, random)
    places = [p for p in re.finditer(r"\(([^()]*,[^()]*|\w+)\)", lines[at])]
    if not places:
        return lines
    place = random.choice(places)
    items = place.group(1).split(", ")
    match random.randrange(4):
        case 0:
            items.append(random.choice(items))
        case 1:
            items.pop(random.randrange(len(items)))
        case 2:
            random.shuffle(items)
        case 3:
            items.append(random.choice(_names(lines)))
    return [*lines[:at], lines[at][: place.start(1)] + ", ".join(items) + lines[at][place.end(1) :], *lines[at + 1 :]]


def change_type(lines: list[str], random: Random) -> list[str]:
    at = _step(lines, random)
    places = list(re.finditer("|".join(re.escape(t) for t in (*TYPES, "SMALLINT", "TINYINT")), lines[at]))
    if not places:
        return change_value(lines, random)
    place = random.choice(places)
    return [*lines[:at], lines[at][: place.start()] + random.choice(TYPES) + lines[at][place.end() :], *lines[at + 1 :]]


def drop_step(lines: list[str], random: Random) -> list[str]:
    """A step less; who used it uses its input."""
    at = _step(lines, random)
    found = re.match(r"(\w+)\s+= \w+ (\w+)", lines[at])
    if found is None:
        return lines
    name, below = found.groups()
    return [
        re.sub(rf"(= \w+ (?:\w+ )?|output ){name}\b", rf"\g<1>{below}", line)
        for number, line in enumerate(lines)
        if number != at
    ]


def add_step(lines: list[str], random: Random) -> list[str]:
    """A step more, between a step and those that use it."""
    at = random.randrange(max(1, len(lines) - 1))
    found = re.match(r"(\w+)\s+= ", lines[at])
    if found is None:
        return lines
    name, made = found.group(1), f"m{random.randrange(1000)}"
    names = _names(lines[max(0, at - 1) : at + 1])
    text = random.choice(BETWEEN).format(
        x=name, c=random.choice(names), d=random.choice(names), v=random.choice(VALUES)
    )
    rest = [re.sub(rf"(= \w+ (?:\w+ )?|output ){name}\b", rf"\g<1>{made}", line) for line in lines[at + 1 :]]
    return [*lines[: at + 1], f"{made} = {text}", *rest]


def drop_attribute(lines: list[str], random: Random) -> list[str]:
    at = _step(lines, random)
    places = list(re.finditer(r" \w+=(\((?:[^()]|\([^()]*\))*\)|\S+)", lines[at]))
    if not places:
        return lines
    place = random.choice(places)
    again = place.group() * random.choice((0, 0, 2))
    return [*lines[:at], lines[at][: place.start()] + again + lines[at][place.end() :], *lines[at + 1 :]]


def use_another(lines: list[str], random: Random) -> list[str]:
    """Another step as the input of one."""
    at = _step(lines, random)
    steps = [m.group(1) for line in lines if (m := re.match(r"(\w+)\s+= ", line))]
    return [
        *lines[:at],
        re.sub(r"(= \w+ )(\w+)", lambda m: m.group(1) + random.choice(steps), lines[at], count=1),
        *lines[at + 1 :],
    ]


EDITS = (
    swap_name,
    swap_name,
    swap_name,
    change_value,
    change_value,
    change_list,
    change_type,
    drop_step,
    add_step,
    add_step,
    drop_attribute,
    use_another,
)


def plans(db: Any) -> list[str]:
    """The texts that are edited."""
    texts = [
        db.sql(
            f"SELECT /*+ SHARDS({shards}) */" + sql[6:] if sql.startswith("SELECT ") and "/*+" not in sql else sql
        ).plan()
        for sql, shards in QUERIES.values()
    ]
    return texts + [db.sql(sql).plan() for sql in MORE.values()]


DEPENDS_ON_ORDER = re.compile(
    r"= (limit|multicast|sample|match|asof_join) "
    r"|limit=|over=rows|(random|first|last|any_value|arbitrary|string_agg|arg_max|arg_min|avg|mode|stddev|sum|row_number|lag|lead)\("
)
"""Where rows are chosen by their order, or floats added up in it, shards may tell."""


MANY = 100_000
"""A plan that gives more rows has been asked for them: no more are looked at."""


class Judge:
    """Runs mutants, and says what came of each."""

    def __init__(self, seconds: float = 20.0):
        self.db = session()
        self.one = session(backend="interp", shards=1, threads=1)
        self.seconds = seconds
        self.texts = plans(self.db)

    def case(self, seed: int) -> tuple[str, str]:
        """(outcome, the mutant) of a case; outcomes that begin with ! are findings."""
        random = Random(seed)
        text = mutate(random.choice(self.texts), random)
        return self.outcome(text), text

    def outcome(self, text: str) -> str:
        try:
            relation = tsql.load_plan_text(text).run(self.db)
        except TsqlError as error:
            return "refused" if error.line_column is not None else f"! refused without a line: {error}"
        except Exception:
            return f"! load: {traceback.format_exc()}"
        found = self._rows(relation)
        if isinstance(found, str):
            return found
        try:
            again = tsql.load_plan_text(relation.plan()).run(self.db).plan()
        except Exception:
            return f"! read again: {traceback.format_exc()}"
        if again != relation.plan():
            return "! printed otherwise"
        shows_states = "phase=partial" in text and "phase=final" not in text and "= combine" not in text
        if shows_states or DEPENDS_ON_ORDER.search(text):
            return "ran"
        expected = self._rows(tsql.load_plan_text(on_one_shard(text)).run(self.one))
        if isinstance(expected, str):
            return f"! one shard alone: {expected}" if expected.startswith("!") else expected
        return (
            "right"
            if found == expected
            else (
                f"! {len(list(found.elements()))} rows, {len(list(expected.elements()))} on one shard; too "
                f"many {list((found - expected).items())[:3]}, missing {list((expected - found).items())[:3]}"
            )
        )

    def _rows(self, relation: Any) -> Counter[str] | str:
        """The rows of a plan, or what came of it instead."""
        begun, found = time.monotonic(), Counter()
        timer = threading.Timer(self.seconds, relation.cancel)
        timer.start()
        try:
            for batch in relation.batches():
                found.update(map(repr, zip(*(column.to_pylist() for column in batch.columns), strict=True)))
                if found.total() > MANY:
                    return "many rows"
            return found
        except CancelledError:
            # A recursion may be asked for rounds without end, as in SQL.
            return "no end" if "= recursive" in relation.plan() else f"! no end after {time.monotonic() - begun:.0f} s"
        except OutOfMemoryError:
            return "out of memory"
        except TsqlError:
            return "failed"
        except Exception:
            return f"! run: {traceback.format_exc()}"
        finally:
            timer.cancel()


def main() -> None:
    cases, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    judge = Judge()
    outcomes: Counter[str] = Counter()
    for number in range(seed, seed + cases):
        print(number, file=sys.stderr, flush=True)
        outcome, text = judge.case(number)
        outcomes[outcome.split(":")[0].split(" rows")[0] if outcome.startswith("!") else outcome] += 1
        if outcome.startswith("!"):
            print(f"case {number}: {outcome}\n{text}\n", flush=True)
    print(dict(outcomes))


if __name__ == "__main__":
    main()
