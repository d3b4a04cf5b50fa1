"""Functions over values at the limits of their types, on our engine and on DuckDB: value or error, row by row.

DuckDB evaluates an expression over all rows at once inside TRY. Rows with a value go through one query of ours. Each
row that fails in DuckDB must also fail in ours, alone. `Case.but` leaves out rows where DuckDB is plainly wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import duckdb
import pyarrow as pa

from tests.slt.render import close

INTEGERS = {
    "TINYINT": (8, True),
    "SMALLINT": (16, True),
    "INTEGER": (32, True),
    "BIGINT": (64, True),
    "HUGEINT": (128, True),
}
UNSIGNED = {"UTINYINT": (8, False), "USMALLINT": (16, False), "UINTEGER": (32, False), "UBIGINT": (64, False)}
DECIMALS = (
    "DECIMAL(4,1)",
    "DECIMAL(9,2)",
    "DECIMAL(18,0)",
    "DECIMAL(18,4)",
    "DECIMAL(38,0)",
    "DECIMAL(38,10)",
    "DECIMAL(38,38)",
)
FLOATS = ("FLOAT", "DOUBLE")
NUMBERS = (*INTEGERS, *UNSIGNED, *DECIMALS, *FLOATS)


def integers(bits: int, signed: bool) -> list[str]:
    """Values beside the limits, beside zero, beside the halves and the roots of the limits, and powers of ten."""
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    around = [
        low,
        low + 1,
        low // 2,
        low // 2 - 1,
        -(2 ** (bits // 2)),
        -3,
        -1,
        0,
        1,
        2,
        10,
        2 ** (bits // 2 - 1),
        2 ** (bits // 2),
        high // 2,
        high // 2 + 1,
        high - 1,
        high,
    ]
    power = 10 ** (len(str(high)) - 1)
    around += [power, -power, power // 2, high // power * power, bits - 1, bits]
    return [str(v) for v in dict.fromkeys(around) if low <= v <= high]


def decimals(width: int, scale: int) -> list[str]:
    """The same of a DECIMAL."""
    top = 10**width - 1
    around = [
        -top,
        -top + 1,
        -(top // 2),
        -(10**scale),
        -5,
        -1,
        0,
        1,
        5,
        10**scale // 2,
        10**scale,
        15 * 10**scale // 10,
        top // 2,
        top // 2 + 1,
        top - 5,
        top - 1,
        top,
    ]
    found = []
    for v in dict.fromkeys(around):
        if abs(v) <= top:
            digits = str(abs(v)).rjust(scale + 1, "0")
            found.append(("-" if v < 0 else "") + (f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits))
    return found


DOUBLES = ["0", "-0.0", "1", "-1", "0.5", "-0.5", "1.5", "2.5", "1e308", "-1e308", "1.7976931348623157e308", "5e-324",
           "inf", "-inf", "nan", "127.4", "127.5", "-128.5",
           "-128.4", "255.5", "2147483647.5", "-2147483648.5", "4294967295.5", "9223372036854775807",
           "-9223372036854775808", "9223372036854774784", "18446744073709551616",
           "170141183460469231731687303715884105728", "-170141183460469231731687303715884105728",
           "1.7014118346046921e38", "99999999999999999999999999999999999999",
           "1e38", "999.94", "999.95", "-999.95", "9999999.994", "9999999.995", "0.1"]  # fmt: skip
SINGLES = ["0", "-0.0", "1", "-1", "0.5", "-0.5", "2.5", "3.4028235e38", "-3.4028235e38", "1e-45", "inf", "-inf", "nan",
           "127.4", "127.5", "-128.5", "2147483648",
           "2147483520", "9223372036854775808", "-9223372036854775808", "9223371487098961920", "1.7014118e38", "1e38",
           "0.1", "999.95"]  # fmt: skip
INTERVALS = ["0 days", "1 day", "-1 day", "1 month", "-1 month", "1 microsecond", "-1 microsecond", "2147483647 months",
             "-2147483648 months", "2147483647 days",
             "-2147483648 days", "2147483646 days", "9223372036854775807 microseconds",
             "-9223372036854775807 microseconds", "2562047788 hours", "1073741824 months",
             "1073741824 days", "4611686018427387904 microseconds",
             "2147483647 months 2147483647 days 9223372036854775807 microseconds",
             "1 month -1 day 86400000000 microseconds",
             "24 hours", "30 days", "178956970 years", "3000000 years"]  # fmt: skip
DATES = [
    "1970-01-01",
    "2000-02-29",
    "infinity",
    "-infinity",
    "5877642-06-25 (BC)",
    "5881580-07-10",
    "5881580-07-09",
    "0001-01-01",
    "9999-12-31",
    "294247-01-10",
    "290309-12-22 (BC)",
]
TIMES = ["1970-01-01 00:00:00", "2000-02-29 23:59:59.999999", "infinity", "-infinity", "290309-12-22 (BC) 00:00:00",
         "294247-01-10 04:00:54.775806", "294247-01-10 04:00:54.775805",
         "0001-01-01 00:00:00", "9999-12-31 23:59:59", "1969-12-31 23:59:59.999999"]  # fmt: skip

VALUES: dict[str, list[str]] = {name: integers(*about) for name, about in {**INTEGERS, **UNSIGNED}.items()}
VALUES |= {name: decimals(*map(int, name[8:-1].split(","))) for name in DECIMALS}
VALUES |= {"DOUBLE": DOUBLES, "FLOAT": SINGLES, "INTERVAL": INTERVALS, "DATE": DATES, "TIMESTAMP": TIMES}
VALUES |= {
    "DIGITS": ["-40", "-39", "-38", "-19", "-2", "-1", "0", "1", "2", "5", "40"],
    "FACTOR": ["0", "1", "-1", "2", "-2", "3", "2147483647", "9223372036854775807", "-9223372036854775808"],
}
SQL = {"DIGITS": "INTEGER", "FACTOR": "BIGINT", "INTERVAL": "VARCHAR"}
"""The column type of each kind. Intervals are cast in the expression: we keep columns in Arrow, which does not have the
largest of DuckDB's intervals."""


@dataclass(frozen=True)
class Case:
    """An expression over `a` (and `b`) of these types; `but` says of which rows DuckDB is wrong."""

    expression: str
    types: tuple[str, ...]
    but: Callable[..., bool] = field(default=lambda *values: False, compare=False)

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return [row for row in product(*(VALUES[t] for t in self.types)) if not self.but(*row)]

    @property
    def sql(self) -> str:
        sql = self.expression
        for column, t in zip("ab", self.types, strict=False):
            if t == "INTERVAL":
                sql = re.sub(rf"\b{column}\b", f"CAST({column} AS INTERVAL)", sql)
        return sql

    @property
    def id(self) -> str:
        return f"{self.expression} {' '.join(self.types)}"


class Engines:
    """Both engines, with a table for each list of types."""

    def __init__(self, **settings: Any) -> None:
        import tsql

        self.ours, self.error = tsql.connect(**settings), tsql.TsqlError
        self._restart()

    def _restart(self) -> None:
        # A database of its own: an expression that DuckDB does not survive spoils nothing else.
        self.oracle = duckdb.connect(config={"threads": 1})
        self.oracle.execute("SET TimeZone = 'UTC'")
        self._tables: dict[tuple[str, ...], str] = {}

    def table(self, case: Case) -> str:
        key = (*case.types, str(len(case.rows)))
        name = self._tables.get(key)
        if name is None:
            name = self._tables[key] = f"limits_{len(self._tables)}"
            columns = ["id", "a", "b"][: len(case.types) + 1]
            texts = _texts(columns, case.rows)
            casts = ", ".join(
                f"CAST({c} AS {SQL.get(t, t)}) AS {c}" for c, t in zip(columns[1:], case.types, strict=True)
            )
            self.oracle.register("texts", texts)
            self.oracle.execute(f"CREATE TABLE {name} AS SELECT id, {casts} FROM texts")
            self.ours.register("texts", texts)
            self.ours.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT id, {casts} FROM texts")
        return name

    def differences(self, case: Case) -> Iterator[str]:
        """Each row on which the engines differ."""
        try:
            table = self.table(case)
        except (self.error, duckdb.Error) as problem:
            yield f"{case.id}: the table: {problem}"
            return
        expression = case.sql
        text = f"CAST({expression} AS VARCHAR)"
        kind_of = f"SELECT typeof({expression}) FROM (SELECT NULL::INT AS id) x LEFT JOIN {table} USING (id)"
        try:
            wanted = dict(self.oracle.execute(f"SELECT id, TRY({text}) FROM {table} ORDER BY id").fetchall())
        except duckdb.FatalException as problem:
            yield f"{case.id}: DuckDB falls over: {str(problem).splitlines()[0]}"
            self._restart()
            return
        except duckdb.Error as problem:
            try:
                self.ours.sql(f"SELECT {text} FROM {table}").fetchall()
            except self.error:
                return
            yield f"{case.id}: only DuckDB refuses it: {str(problem).splitlines()[0]}"
            return
        kind = self.oracle.execute(kind_of).fetchall()[-1][0]
        fails = {
            i
            for i, value in wanted.items()
            if value is None and self._fails(f"SELECT {text} FROM {table} WHERE id = {i}")
        }
        good = [i for i in wanted if i not in fails]
        try:
            given_kind = self.ours.sql(kind_of).fetchall()[-1][0]
        except self.error as problem:
            yield f"{case.id}: only our engine refuses it: {str(problem).splitlines()[0]}"
            return
        if given_kind != kind:
            yield f"{case.id}: type {given_kind} instead of {kind}"
        given = self._ours(text, table, good)
        for i in good:
            a, b = given[i], wanted[i]
            if a != b and not (
                kind in FLOATS and a is not None and b is not None and close(a, b, 1e-6 if kind == "FLOAT" else 1e-9)
            ):
                yield f"{case.id}: {case.rows[i]}: {a} instead of {b}"
        for i in fails:
            try:
                value = self.ours.sql(f"SELECT {text} FROM {table} WHERE id = ?", [i]).fetchall()[0][0]
            except self.error:
                continue
            yield f"{case.id}: {case.rows[i]}: {value} instead of an error"

    def _fails(self, sql: str) -> bool:
        try:
            self.oracle.execute(sql).fetchall()
        except duckdb.Error:
            return True
        return False

    def _ours(self, text: str, table: str, good: list[int]) -> dict[int, str | None]:
        self.ours.register("good", pa.table({"id": pa.array(good, pa.int32())}))
        try:
            return dict(self.ours.sql(f"SELECT id, {text} FROM {table} SEMI JOIN good USING (id)").fetchall())
        except self.error:
            pass
        given: dict[int, str | None] = {}
        for i in good:
            try:
                given[i] = self.ours.sql(f"SELECT {text} FROM {table} WHERE id = ?", [i]).fetchall()[0][0]
            except self.error as problem:
                given[i] = f"error: {str(problem).splitlines()[0]}"
        return given


def _texts(columns: list[str], rows: list[tuple[str, ...]]) -> pa.Table:
    arrays = [
        pa.array(range(len(rows)), pa.int32()),
        *(pa.array(values, pa.string()) for values in zip(*rows, strict=True)),
    ]
    return pa.table(arrays, names=columns)


def cases() -> Iterator[Case]:
    """What is compared."""
    for t in NUMBERS:
        for op in ("+", "-", "*", "//", "%", "/"):
            yield Case(f"a {op} b", (t, t))
        for call in ("-a", "abs(a)", "sign(a)", "round(a)", "floor(a)", "ceil(a)", "trunc(a)"):
            yield Case(call, (t,))
        for target in (*INTEGERS, *UNSIGNED, *DECIMALS, *FLOATS, "VARCHAR", "BOOLEAN"):
            yield Case(f"CAST(a AS {target})", (t,))
            yield Case(f"TRY_CAST(a AS {target})", (t,))
    for t in (*INTEGERS, *UNSIGNED):
        for call in ("a & b", "a | b", "xor(a, b)", "a << b", "a >> b", "gcd(a, b)", "lcm(a, b)", "greatest(a, b)"):
            yield Case(call, (t, t))
        for call in ("~a", "bit_count(a)", "factorial(a::INTEGER)", "even(a)"):
            yield Case(call, (t,))
    for t in DECIMALS:
        for name in ("round", "trunc", "round_even"):
            for digits in VALUES["DIGITS"]:
                yield Case(f"{name}(a, {digits})", (t,))
    for t in (*INTEGERS, *UNSIGNED, *FLOATS):
        for name in ("round", "trunc", "round_even"):
            # DuckDB truncates to nothing what has a twentieth digit.
            yield Case(
                f"{name}(a, b)", (t, "DIGITS"), lambda a, b, of=(name, t): of == ("trunc", "UBIGINT") and b == "-19"
            )
    for a, b in (
        ("BIGINT", "UBIGINT"),
        ("HUGEINT", "UBIGINT"),
        ("DECIMAL(18,0)", "BIGINT"),
        ("DECIMAL(38,0)", "HUGEINT"),
        ("DECIMAL(18,4)", "DECIMAL(38,10)"),
        ("INTEGER", "DECIMAL(9,2)"),
    ):
        for op in ("+", "-", "*", "//", "%", "<", "="):
            # DuckDB computes with a HUGEINT of 39 digits as if it were a DECIMAL(38,0), which a cast refuses.
            yield Case(f"a {op} b", (a, b), lambda a, b: len(b.lstrip("-")) > 38)
    for op in ("+", "-", "<", "="):
        yield Case(f"a {op} b", ("INTERVAL", "INTERVAL"))
    for call in ("-a", "to_seconds(epoch(a)::BIGINT)", "epoch_us(a)", "epoch(a)", "date_part('day', a)"):
        yield Case(call, ("INTERVAL",))
    for b in ("FACTOR", "DOUBLE"):
        # Whether a fraction of billions of days is fused into the product depends on the processor that DuckDB runs on.
        def is_fused(a: str, b: str) -> bool:
            return ("178956970" in a or len(a.split()[0]) >= 9 or (a == "30 days" and b > "9")) and b not in (
                "0",
                "1",
                "-1",
                "0.5",
                "-0.5",
                "2",
                "-2",
            )

        yield Case("a * b", ("INTERVAL", b), is_fused if b == "DOUBLE" else lambda a, b: False)
        yield Case("a / b", ("INTERVAL", b), is_fused)
    yield Case("b * a", ("INTERVAL", "FACTOR"))
    for t in ("DATE", "TIMESTAMP"):
        for op in ("+", "-"):
            yield Case(f"a {op} b", (t, "INTERVAL"))
        for call in ("date_add(a, b)", "time_bucket(b, a)"):
            yield Case(call, (t, "INTERVAL"))
        for call in (
            "a - b",
            "age(a, b)",
            "date_diff('day', a, b)",
            "date_diff('microsecond', a, b)",
            "date_diff('millisecond', a, b)",
            "date_diff('second', a, b)",
            "date_diff('month', a, b)",
            "date_sub('hour', a, b)",
            "date_sub('month', a, b)",
        ):
            yield Case(call, (t, t))
        for call in ("a::DATE", "a::TIMESTAMP", "a::TIMESTAMPTZ", "a::VARCHAR", "epoch_us(a)", "epoch_ns(a)",
                     "date_trunc('year', a)", "date_trunc('week', a)", "last_day(a)", "julian(a)",
                     "date_trunc('millennium', a)", "dayofyear(a)", "yearweek(a)"):  # fmt: skip
            # DuckDB has no weeks in the year whose first day is no DATE.
            yield Case(call, (t,), lambda a, call=call: call == "yearweek(a)" and a.startswith("5877642"))
    for call in ("a + b", "a - b"):
        # DuckDB goes to a date before the number that stands for -infinity.
        yield Case(
            call,
            ("DATE", "INTEGER"),
            lambda a, b: (a, b) in (("1970-01-01", "-2147483648"), ("5877642-06-25 (BC)", "2")),
        )
    for call in ("make_date(a)", "to_timestamp(a)", "to_days(a)", "to_hours(a)", "to_months(a)", "to_years(a)",
                 "to_weeks(a)", "to_minutes(a)", "to_seconds(a)", "to_milliseconds(a)", "to_microseconds(a)",
                 "to_decades(a)", "to_centuries(a)", "to_millennia(a)", "to_quarters(a)"):  # fmt: skip
        yield Case(call, ("INTEGER",))
        yield Case(call, ("BIGINT",))
        yield Case(call, ("DOUBLE",))


def main() -> None:
    """Prints all differences, or those of the expressions that are named."""
    import sys

    engines, found = Engines(), 0
    for case in cases():
        if len(sys.argv) < 2 or any(word in case.id for word in sys.argv[1:]):
            for line in engines.differences(case):
                found += 1
                print(line, flush=True)
    print(found, "differences")


if __name__ == "__main__":
    main()
