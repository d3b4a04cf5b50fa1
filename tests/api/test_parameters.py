"""Python values as SQL parameters; DuckDB says which type each value has."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import tsql
from tests.duck import empty_duckdb
from tsql.kernels.expr import types
from tsql.kernels.expr.errors import BindError
from tsql.kernels.expr.types import parse_type
from tsql.parameters import check_names, convert, convert_all, parse_value

UTC = dt.UTC
VALUES = [
    True, 0, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**127 - 1, -(2**63) - 1,
    1.5, float("inf"), "text", b"\x00bytes", Decimal("1.50"), Decimal("-0.001"), Decimal("1E+3"), Decimal("0"),
    Decimal("12345678901234567890.12"), Decimal("1E-40"), dt.date(2020, 2, 29), dt.datetime(2020, 2, 29, 12, 30, 1, 5),
    dt.datetime(1901, 1, 1), dt.datetime(2020, 2, 29, tzinfo=UTC),
    dt.datetime(2020, 2, 29, tzinfo=dt.timezone(dt.timedelta(hours=2))), dt.time(23, 59, 59, 7),
    dt.timedelta(days=400, seconds=-5, microseconds=3),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_types_are_those_of_duckdb(value):
    ((named,),) = empty_duckdb().execute("SELECT typeof($1)", [value]).fetchall()
    assert convert(value)[0] == parse_type(named)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (Decimal("1.50"), 150), (Decimal("-0.001"), -1), (Decimal("1E+3"), 1000), (dt.date(1970, 1, 2), 1),
        (dt.date(1969, 12, 31), -1), (dt.datetime(1970, 1, 1, 0, 0, 1, 5), 1_000_005),
        (dt.datetime(1969, 12, 31, 23, 59, 59, 999999), -1),
        (dt.datetime(1970, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))), 0),
        (dt.time(1, 0, 0, 1), 3_600_000_001),
        (dt.timedelta(days=1, seconds=-5), (0, 0, 86_395_000_000)), (None, None), (bytearray(b"x"), b"x"),
        (np.int16(3), 3), (np.float32(0.5), 0.5),
    ],
    ids=repr,
)  # fmt: skip
def test_stored_form(value, stored):
    assert convert(value)[1] == stored


@pytest.mark.parametrize(
    "value",
    [2**127, -(2**127) - 1, object(), [1], {"a": 1}, dt.time(1, tzinfo=UTC)],
    ids=["too large", "too small", "object", "list", "dict", "time with a zone"],
)
def test_values_without_a_type_are_refused(value):
    with pytest.raises(BindError):
        convert(value)


@pytest.mark.parametrize(
    "value",
    [pd.NaT, pd.NA, np.datetime64("NaT"), np.timedelta64("NaT")],
    ids=["NaT", "NA", "datetime64", "timedelta64"],
)
def test_values_that_are_missing_are_null(value):
    assert convert(value) == (types.NULL, None)
    with tsql.connect() as db:
        assert db.sql("SELECT $a IS NULL", {"a": value}).fetchall() == [(True,)]


def test_an_error_names_the_parameter():
    with tsql.connect() as db:
        with pytest.raises(
            BindError,
            match=r"the parameter \$a: the text is not Unicode: character 3 is '\\ud800', half of a surrogate pair",
        ):
            db.sql("SELECT $a", {"a": "ab\ud800"})
        with pytest.raises(BindError, match=r"the parameter \$2: a Python object cannot be a parameter"):
            db.sql("SELECT $1, $2", [1, object()])


def test_sequences_are_numbered_and_mappings_named():
    assert convert_all([1, "a"]) == ({"1": types.INTEGER, "2": types.VARCHAR}, {"1": 1, "2": "a"})
    assert convert_all({"x": None}) == ({"x": types.NULL}, {"x": None})
    assert convert_all(None) == ({}, {})
    with pytest.raises(BindError, match="a list, a tuple or a dict, not str"):
        convert_all("text")


def test_missing_and_excess_parameters():
    check_names({"a": 1}, ["a", "a"])
    with pytest.raises(BindError, match=r"no value for the parameters \$b, \$c"):
        check_names({"a": 1}, ["a", "b", "c"])
    with pytest.raises(BindError, match=r"the query has no parameter \$b"):
        check_names({"a": 1, "b": 2}, ["a"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("-7", -7), ("1.50", Decimal("1.50")), ("1e3", 1000.0), ("true", True), ("NULL", None), ("'1'", "1"),
        ("'it''s'", "it's"), ("plain text", "plain text"), ("", ""), ("DATE '2020-01-02'", dt.date(2020, 1, 2)),
        ("timestamp '2020-01-02 03:04:05'", dt.datetime(2020, 1, 2, 3, 4, 5)),
        ("TIMESTAMPTZ '2020-01-02 03:04:05'", dt.datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("TIME '01:02:03'", dt.time(1, 2, 3)),
    ],
)  # fmt: skip
def test_values_on_the_command_line(text, value):
    found = parse_value(text)
    assert found == value and type(found) is type(value)


def test_a_bad_date_on_the_command_line():
    with pytest.raises(BindError, match="'tomorrow' is no DATE"):
        parse_value("DATE 'tomorrow'")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("SELECT $1,$2", [1, 2]), ("SELECT 2 IN ($1,$2)", [1, 2]), ("SELECT $a+$b", {"a": 1, "b": 2}),
        ("SELECT $a||$b", {"a": "x", "b": "y"}), ("SELECT $1::INTEGER+$2-$3*$4", [1, 2, 3, 4]),
        ("SELECT '$1,$2',$1--$2\n,$2", [1, 2]), ("SELECT $$a$b$$,$1,$t$x$$y$t$", [3]), ("SELECT $1,$$a,$b$$", [1]),
        ('SELECT $1 AS "$1,$",$2', [1, 2]),
    ],
)  # fmt: skip
def test_parameters_need_no_space_between_them(text, values):
    """`$1,$` is no tag of a dollar quote: a tag is a name, or nothing."""
    with tsql.connect() as db:
        assert db.sql(text, values).fetchall() == empty_duckdb().execute(text, values).fetchall()


def test_an_error_behind_a_parameter_has_its_place():
    with tsql.connect() as db, pytest.raises(BindError) as caught:
        db.sql("SELECT $1,\n$2+nope", [1, 2])
    assert caught.value.line_column == (2, 4)
