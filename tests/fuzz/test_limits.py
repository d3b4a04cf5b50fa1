"""Functions, operators, aggregates, texts and formats at the limits: a part of what `limits.py` and its neighbours
compare, all under --all-configurations."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, localcontext
from random import Random

import duckdb
import pyarrow as pa
import pytest

import tsql
from tests.fuzz.amount import step
from tests.fuzz.formats import VALUES, brace_format, printf_format, strftime_format
from tests.fuzz.limit_groups import GroupEngines, group_cases
from tests.fuzz.limits import Engines, cases
from tests.fuzz.number_texts import TYPES, number_text

SEED = 3
PART = 41
"""One case of so many is compared, unless all are."""


def _part() -> int:
    return 1 if step() == 1 else PART


@pytest.mark.parametrize("start", (0, 20))
def test_expressions(start: int) -> None:
    engines = Engines()
    found = [line for case in list(cases())[start :: _part()] for line in engines.differences(case)]
    assert not found, "\n".join(found)


def test_aggregates() -> None:
    engines = GroupEngines(SEED)
    numeric = [
        case
        for case in group_cases()
        if case.call in ("sum(a)", "avg(a)", "min(a)", "max(a)", "bit_xor(a)")
        and case.type not in ("DATE", "INTERVAL", "TIMESTAMP")
    ]
    found = [line for case in numeric[:: _part()] for line in engines.differences(case)]
    assert not found, f"seed {SEED}\n" + "\n".join(found)


@pytest.mark.parametrize("settings", [{"shards": 3}, {"batch_rows": 1}])
def test_sums_of_128_bits_in_any_order(settings: dict[str, int]) -> None:
    """A sum that leaves 128 bits on the way and comes back is what it is, however its rows are spread."""
    most = 2**127 - 1
    ours = tsql.connect(**settings)
    rows = [(g, value) for g in range(8) for value in (most, most, -most, -most + g, -g)]
    Random(SEED).shuffle(rows)
    texts = pa.table({"g": [g for g, _ in rows], "x": [str(value) for _, value in rows]})
    ours.register("texts", texts)
    ours.execute("CREATE TABLE t AS SELECT g, CAST(x AS HUGEINT) AS x FROM texts")
    assert sorted(ours.sql("SELECT g, sum(x) FROM t GROUP BY g").fetchall()) == [(g, 0) for g in range(8)]
    assert ours.sql("SELECT sum(x) FROM t").fetchall() == [(0,)]
    with pytest.raises(tsql.TsqlError, match="Overflow in sum"):
        ours.sql("SELECT sum(x) FROM t WHERE x > 0").fetchall()


def _exact(text: str, target: str) -> int | None:
    """A number as a text says it, times 10^scale and rounded half away from zero; None where it is none, or out of
    range."""
    try:
        number = Decimal(text)
    except ArithmeticError:
        return None
    width, scale = map(int, target[8:-1].split(",")) if target.startswith("DECIMAL") else (0, 0)
    if number and abs(number.adjusted()) > 200:
        number = Decimal(0) if number.adjusted() < 0 else Decimal("1e200").copy_sign(number)
    with localcontext(prec=400):
        value = int(number.scaleb(scale).quantize(Decimal(1), ROUND_HALF_UP))
    bits = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}.get(target.removeprefix("U"), 0)
    if target.startswith("U"):
        return value if 0 <= value < 2**bits and not (number < 0) else None
    limit = 10**width - 1 if width else 2 ** (bits - 1) - 1
    return value if -limit - (not width) <= value <= limit else None


def test_texts_of_numbers_keep_all_digits() -> None:
    """By definition, and not by DuckDB, which drops digits of long numbers with exponents."""
    rng = Random(SEED)
    texts = [
        text
        for text in (number_text(rng) for _ in range(900))
        if "_" not in text and " " not in text and "\t" not in text
    ]
    ours = tsql.connect()
    ours.register("t", pa.table({"s": texts}))
    for target in TYPES:
        if target in ("DOUBLE", "FLOAT"):
            continue
        scale = int(target[8:-1].split(",")[1]) if target.startswith("DECIMAL") else 0
        for text, given in ours.sql(f"SELECT s, TRY_CAST(s AS {target}) FROM t").fetchall():
            if target.startswith("U") and text.startswith("-"):
                continue  # of these only -0 is taken
            with localcontext(prec=100):
                value = None if given is None else int(Decimal(given).scaleb(scale))
            # What stands before the point must fit by itself, as in DuckDB, even if an exponent makes it small.
            if value != (wanted := _exact(text, target)) and not (value is None and "e-" in text.lower()):
                raise AssertionError(f"seed {SEED}: {text} as {target} is {given}, and not {wanted}")


def _filled(oracle: duckdb.DuckDBPyConnection, sql: str) -> tuple[str, object]:
    try:
        return "value", oracle.execute(sql).fetchall()
    except duckdb.Error:
        return "error", None


def _fill(ours: tsql.Session, sql: str) -> tuple[str, object]:
    try:
        return "value", ours.sql(sql).fetchall()
    except tsql.TsqlError:
        return "error", None


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@pytest.mark.parametrize(("name", "make"), [("printf", printf_format), ("format", brace_format)])
def test_formats_of_values(name: str, make: object) -> None:
    rng, ours, oracle = Random(SEED), tsql.connect(), duckdb.connect()
    for kind, values in VALUES.items():
        for _ in range(24 // step()):
            template, value = make(rng), rng.choice(values)
            # fmt's digits of 1e300 are not all right, its 0 digits of general numbers are not 0, and it writes two
            # points where # asks for one.
            if value == "1e300" or (
                kind in ("DOUBLE", "DECIMAL(9,2)")
                and (
                    ".0" in template or "#" in template or "." in template and not template.split(".")[1][:1].isdigit()
                )
            ):
                continue
            sql = f"SELECT {name}({_literal(template)}, CAST({_literal(value)} AS {kind}))"
            assert _fill(ours, sql) == _filled(oracle, sql), f"seed {SEED}: {sql}"


def test_formats_of_times() -> None:
    rng, ours, oracle = Random(SEED), tsql.connect(), duckdb.connect()
    stamps = (
        "1992-03-02 20:32:45.123456",
        "2020-12-31 00:00:00",
        "2021-01-01 12:00:00",
        "2019-12-30 11:59:59.999999",
        "0099-01-01 01:02:03",
        "9999-12-31 23:59:59",
        "2024-01-07 00:00:01",
    )
    for _ in range(60 // step()):
        # %n is TIMESTAMP_NS in DuckDB, which has other limits, and strftime does not fill it.
        template, stamp = strftime_format(rng).replace("%-n", "%d").replace("%n", "%d"), rng.choice(stamps)
        sql = f"SELECT strftime(TIMESTAMP '{stamp}', {_literal(template)})"
        wanted = _filled(oracle, sql)
        assert _fill(ours, sql) == wanted, f"seed {SEED}: {sql}"
        if wanted[0] == "value":
            sql = f"SELECT try_strptime({_literal(wanted[1][0][0])}, {_literal(template)})::VARCHAR"
            assert _fill(ours, sql) == _filled(oracle, sql), f"seed {SEED}: {sql}"
