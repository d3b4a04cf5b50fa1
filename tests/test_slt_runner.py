"""The slt runner itself: what it reads it writes back, and it sees every kind of difference."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.slt import records, render
from tests.slt.engines import DuckDB
from tests.slt_runner import complete_file, corpus_files, run_file


class Rewriting(DuckDB):
    """An engine that is wrong in one way: it runs another text for one query."""

    name = "rewriting"

    def __init__(self, old: str, new: str) -> None:
        super().__init__()
        self._old, self._new = old, new

    def query(self, sql: str, params: object = None) -> pa.Table:
        return super().query(sql.replace(self._old, self._new), params)


FILE = """load one

query I
SELECT x FROM one
----
-5

query IT rowsort
SELECT x, k FROM one UNION ALL SELECT 1, 'b'
----
-5	only
1	b

statement error convert
SELECT k::INTEGER FROM one
"""


@pytest.fixture
def slt_file(tmp_path: Path) -> Path:
    path = tmp_path / "file.slt"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize("path", corpus_files(), ids=lambda path: path.stem)
def test_files_round_trip(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert records.write(records.parse(text)) == text


def test_right_engine_passes(slt_file: Path) -> None:
    assert run_file(slt_file, DuckDB()) == []


@pytest.mark.parametrize(
    ("old", "new", "kind", "line"),
    [
        ("SELECT x FROM", "SELECT x + 1 AS x FROM", "rows", 3),
        ("SELECT x FROM", "SELECT x AS other FROM", "names", 3),
        ("SELECT x FROM", "SELECT x::BIGINT AS x FROM", "types", 3),
        ("SELECT x FROM", "SELECT nosuch FROM", "error", 3),
        ("SELECT 1, 'b'", "SELECT 1, 'c'", "rows", 8),
        ("SELECT 1, 'b'", "SELECT 1, 'b' UNION ALL SELECT 1, 'b'", "rows", 8),
        ("k::INTEGER", "k", "no error", 14),
        ("k::INTEGER", "nosuch", "message", 14),
    ],
)
def test_differences_are_seen(slt_file: Path, old: str, new: str, kind: str, line: int) -> None:
    failures = run_file(slt_file, Rewriting(old, new))
    assert [(failure.kind, failure.line) for failure in failures] == [(kind, line)]


def test_rows_of_the_file_are_checked_against_the_oracle(tmp_path: Path) -> None:
    path = tmp_path / "stale.slt"
    path.write_text("query I\nSELECT 1 AS a\n----\n2\n")
    assert [failure.kind for failure in run_file(path, DuckDB())] == ["oracle"]


def test_complete_fills_in_types_and_rows(tmp_path: Path) -> None:
    path = tmp_path / "new.slt"
    path.write_text("# kept\nquery rowsort\nSELECT * FROM (VALUES (2, 'b'), (1, '')) t(n, s)\n\nquery\nSELECT nosuch\n")
    failures = complete_file(path)
    assert path.read_text() == (
        "# kept\nquery IT rowsort\nSELECT * FROM (VALUES (2, 'b'), (1, '')) t(n, "
        "s)\n----\n1\t(empty)\n2\tb\n\nquery\nSELECT nosuch\n"
    )
    assert [failure.line for failure in failures] == [5]


def test_conditions_choose_records() -> None:
    skipped, only = records.parse("skipif interp\nquery I\nSELECT 1\n\nonlyif shards_3\nstatement ok\nSELECT 1\n")
    assert (skipped.runs_under("interp"), skipped.runs_under("default")) == (False, True)
    assert (only.runs_under("shards_3"), only.runs_under("default")) == (True, False)


def test_parameters_are_literals() -> None:
    assert records.parse_params("[1, None, date(2020, 2, 29), Decimal('1.5')]") == [
        1,
        None,
        datetime.date(2020, 2, 29),
        Decimal("1.5"),
    ]
    with pytest.raises(records.FormatError):
        records.parse_params("[__import__('os')]")


@pytest.mark.parametrize("text", ["select 1", "statement maybe\nSELECT 1", "query I"])
def test_bad_files_are_refused(text: str) -> None:
    with pytest.raises(records.FormatError):
        records.parse(text)


def test_text_is_unambiguous() -> None:
    shown = [render.text(value) for value in ("", "NULL", "(empty)", " a ", "   ", "a\tb", "a\\tb", "\x01", "é")]
    assert shown == ["(empty)", '"NULL"', '"(empty)"', "\\sa\\s", "\\s\\s\\s", "a\\tb", "a\\\\tb", "\\x01", "é"]


def test_times_outside_of_pythons_range() -> None:
    assert render.timestamp(-62135596800000001) == "0001-12-31 23:59:59.999999 (BC)"
    assert render.timestamp(2**63 - 1) == "infinity"
    assert render.date(2**31 - 2) == "5881580-07-10"
    assert render.interval(-13, 1, -1) == "-1 year -1 month 1 day -00:00:00.000001"


def test_numbers_are_compared_with_a_tolerance() -> None:
    assert render.differing_row([("1.0000000000001",)], [("1.0",)], ["DOUBLE"]) is None
    assert render.differing_row([("nan",)], [("nan",)], ["DOUBLE"]) is None
    assert render.differing_row([("1.00001",)], [("1.0",)], ["DOUBLE"]) is not None
    assert render.differing_row([("1.0000000000001",)], [("1.0",)], ["VARCHAR"]) is not None
