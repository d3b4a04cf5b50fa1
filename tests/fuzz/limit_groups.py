"""Aggregates over groups of values at the limits of their types, on our engine and on DuckDB: value or error, group by
group.

A query over all groups fails if one does; the groups are then halved until each has its value or its error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, getcontext
from itertools import combinations_with_replacement
from random import Random
from typing import Any

import duckdb
import pyarrow as pa

from tests.fuzz.limits import INTEGERS, NUMBERS, SQL, UNSIGNED, VALUES
from tests.slt.render import close

getcontext().prec = 120

FORMS = {
    "groups": "SELECT g, CAST({call} AS VARCHAR) FROM {table} WHERE {wanted} GROUP BY g",
    "running": (
        "SELECT g * 10 + i, CAST({call} OVER (PARTITION BY g ORDER BY i) AS VARCHAR) FROM {table} WHERE {wanted}"
    ),
    "sliding": (
        "SELECT g * 10 + i, CAST({call} OVER (PARTITION BY g ORDER BY i ROWS BETWEEN 1 PRECEDING AND CURRENT "
        "ROW) AS VARCHAR) FROM {table} WHERE {wanted}"
    ),
    "whole": "SELECT g * 10 + i, CAST({call} OVER (PARTITION BY g) AS VARCHAR) FROM {table} WHERE {wanted}",
}
FAILS = "an error"
WIDE = ("HUGEINT", "DECIMAL(38,0)", "DECIMAL(38,10)", "DECIMAL(38,38)")
CHOSEN = {
    # What is further out DuckDB adds in 32 bits, or does not survive; and Arrow, in which windows keep their rows, has
    # no larger intervals.
    "INTERVAL": ["0 days", "1 day", "-1 day", "1 month", "-1 month", "1 microsecond", "-1 microsecond",
                 "100000000 months", "-100000000 months", "100000000 days", "-100000000 days",
                 "2000000 hours", "-2000000 hours", "1 month -1 day 86400000000 microseconds", "24 hours", "30 days"],
    "DATE": ["1970-01-01", "2000-02-29", "infinity", "-infinity", "0001-01-01", "9999-12-31", "294247-01-10",
             "290309-12-22 (BC)"],
    "FLOAT": [v for v in VALUES["FLOAT"] if "inf" not in v and v != "nan"],
}  # fmt: skip
"""Values of types for which not all are taken."""
GROUPS = 90


@dataclass(frozen=True)
class GroupCase:
    """An aggregate of `a` over groups of values of one type, in one form."""

    call: str
    type: str
    form: str

    @property
    def id(self) -> str:
        return f"{self.call} {self.type} {self.form}"


class GroupEngines:
    """Both engines, with a table of groups for each type."""

    def __init__(self, seed: int = 1, **settings: Any) -> None:
        import tsql

        self.seed, self.ours, self.error = seed, tsql.connect(**settings), tsql.TsqlError
        self.oracle = duckdb.connect(config={"threads": 1})
        self.oracle.execute("SET TimeZone = 'UTC'")
        self.groups: dict[str, list[tuple[str, ...]]] = {}

    def table(self, t: str) -> str:
        name = "groups_" + "".join(c for c in t if c.isalnum())
        if t not in self.groups:
            rng, values = Random(f"{self.seed}/{t}"), CHOSEN.get(t, VALUES[t])
            pairs = list(combinations_with_replacement(values, 2))
            rng.shuffle(pairs)
            self.groups[t] = (
                [(v,) for v in values]
                + pairs[:GROUPS]
                + [tuple(rng.choices(values, k=rng.randint(3, 5))) for _ in range(GROUPS // 3)]
            )
            self._fill(self.ours, name, t)
            self._fill(self.oracle, name, t)
        return name

    def _fill(self, engine: Any, name: str, t: str) -> None:
        rows = [(g, i, v) for g, group in enumerate(self.groups[t]) for i, v in enumerate(group)]
        texts = pa.table(
            {
                "g": pa.array([r[0] for r in rows], pa.int32()),
                "i": pa.array([r[1] for r in rows], pa.int32()),
                "a": [r[2] for r in rows],
            }
        )
        engine.register("texts", texts)
        engine.execute(f"CREATE TABLE {name} AS SELECT g, i, CAST(a AS {SQL.get(t, t)}) AS a FROM texts")

    def _ask_oracle(self, sql: str, name: str, t: str) -> list[tuple[int, Any]]:
        """DuckDB's rows. Some failures it does not survive: it is started again."""
        try:
            return self.oracle.execute(sql).fetchall()
        except duckdb.FatalException:
            self.oracle = duckdb.connect(config={"threads": 1})
            self._fill(self.oracle, name, t)
            raise

    def differences(self, case: GroupCase) -> Iterator[str]:
        table = self.table(case.type)
        call = case.call if case.type != "INTERVAL" else case.call.replace("(a", "(CAST(a AS INTERVAL)")
        groups = range(len(self.groups[case.type]))

        def sql(first: int, last: int) -> str:
            return FORMS[case.form].format(call=call, table=table, wanted=f"g BETWEEN {first} AND {last}")

        wanted = outcomes(lambda f, l: self._ask_oracle(sql(f, l), table, case.type), duckdb.Error, groups)
        given = outcomes(lambda f, l: self.ours.sql(sql(f, l)).fetchall(), self.error, groups)
        for g in groups:
            if wanted[g] == FAILS and case.call in ("sum(a)", "avg(a)") and case.type in WIDE:
                wanted[g] = _exact_sums(case, self.groups[case.type][g], g)
                if case.call == "avg(a)" and FAILS not in (wanted[g], given[g]):
                    continue
            if not _same(given[g], wanted[g], case.type):
                yield f"{case.id}: {self.groups[case.type][g]}: {given[g]} instead of {wanted[g]}"


def _exact_sums(case: GroupCase, values: tuple[str, ...], g: int) -> Any:
    """Sums by their definition. DuckDB fails even if a sum leaves 128 bits only temporarily, in its own order of
    additions."""
    digits = [Decimal(v) for v in values]
    first = {
        "running": lambda i: digits[: i + 1],
        "sliding": lambda i: digits[max(i - 1, 0) : i + 1],
        "whole": lambda i: digits,
        "groups": lambda i: digits,
    }[case.form]
    scale = int(case.type[8:-1].split(",")[1]) if case.type.startswith("DECIMAL") else None
    found = []
    for i in range(1 if case.form == "groups" else len(values)):
        total = sum(first(i), Decimal(0))
        low, high = (-(2**127), 2**127 - 1) if scale is None else (-(10**38) + 1, 10**38 - 1)
        if not low <= total.scaleb(scale or 0) <= high:
            return FAILS
        text = f"{total:f}" if scale else str(int(total))
        found.append((g if case.form == "groups" else g * 10 + i, text.replace("0.", ".", 1) if scale == 38 else text))
    return found


def _same(a: Any, b: Any, t: str) -> bool:
    if a == b or FAILS in (a, b):
        return a == b
    return len(a) == len(b) and all(
        x == y or (None not in (x[1], y[1]) and x[0] == y[0] and _is_float(x[1], y[1]) and close(x[1], y[1], 1e-9))
        for x, y in zip(a, b, strict=True)
    )


def _is_float(a: str, b: str) -> bool:
    return any(c in text for text in (a, b) for c in ".ein") and ":" not in a


def outcomes(run: Callable[[int, int], list[tuple[int, Any]]], error: type[Exception], groups: range) -> dict[int, Any]:
    """By group, its rows or FAILS."""
    if not groups:
        return {}
    try:
        rows = run(groups[0], groups[-1])
    except error:
        if len(groups) == 1:
            return {groups[0]: FAILS}
        half = len(groups) // 2
        return outcomes(run, error, groups[:half]) | outcomes(run, error, groups[half:])
    found: dict[int, Any] = {g: [] for g in groups}
    for key, value in sorted(rows, key=lambda row: row[0]):
        found[key if key in found and len(rows) == len(groups) else key // 10].append((key, value))
    return found


def group_cases() -> Iterator[GroupCase]:
    """What is compared."""
    for t in NUMBERS:
        calls = [
            "sum(a)",
            "avg(a)",
            "min(a)",
            "max(a)",
            "product(a)",
            "median(a)",
            "quantile_cont(a, 0.25)",
            "quantile_disc(a, 0.25)",
            "mode(a)",
            "var_pop(a)",
            "kahan_sum(a)",
            "favg(a)",
        ]
        if t in INTEGERS or t in UNSIGNED:
            calls += ["bit_and(a)", "bit_or(a)", "bit_xor(a)"]
        for call in calls:
            for form in FORMS:
                if form == "groups" or call in (
                    "sum(a)",
                    "avg(a)",
                    "median(a)",
                    "quantile_cont(a, 0.25)",
                    "bit_xor(a)",
                ):
                    yield GroupCase(call, t, form)
    for t in ("INTERVAL", "DATE", "TIMESTAMP"):
        for call in (("sum(a)",) if t == "INTERVAL" else ()) + (
            "avg(a)",
            "min(a)",
            "max(a)",
            "median(a)",
            "quantile_cont(a, 0.25)",
            "quantile_disc(a, 0.75)",
            "mode(a)",
        ):
            for form in FORMS:
                yield GroupCase(call, t, form)


def main() -> None:
    """Prints all differences, or those of the calls that are named."""
    import sys

    engines, found = GroupEngines(), 0
    for case in group_cases():
        if len(sys.argv) < 2 or any(word in case.id for word in sys.argv[1:]):
            for line in engines.differences(case):
                found += 1
                print(line, flush=True)
    print(found, "differences")


if __name__ == "__main__":
    main()
