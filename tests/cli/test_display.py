"""Tables for people: widths, heights, alignment, NULLs and hostile text."""

import io
from decimal import Decimal

import pyarrow as pa
import pytest
from rich.cells import cell_len

from tsql.cli.display import clean, excerpt, lines, print_table, table_text
from tsql.kernels.expr.schema import Schema
from tsql.relation import Relation, of_table


def relation(table: pa.Table, batch_rows: int = 7) -> Relation:
    types = tuple(field.type for field in Schema.from_arrow(table.schema))
    return Relation(tuple(table.column_names), types, lambda run: iter(table.to_batches(max_chunksize=batch_rows)))


def test_a_small_table():
    table = pa.table(
        {
            "i": [1, 20],
            "s": ["a", None],
            "日本": ["日", "本x"],
            "d": pa.array([Decimal("1.50"), None], pa.decimal128(6, 2)),
        }
    )
    assert table_text(relation(table)).splitlines() == [
        "┌────────┬─────────┬─────────┬──────────────┐",
        "│   i    │    s    │  日本   │      d       │",
        "│ bigint │ varchar │ varchar │ decimal(6,2) │",
        "├────────┼─────────┼─────────┼──────────────┤",
        "│      1 │ a       │ 日      │         1.50 │",
        "│     20 │ NULL    │ 本x     │         NULL │",
        "└────────┴─────────┴─────────┴──────────────┘",
        " 2 rows",
    ]


def test_the_first_and_last_rows():
    assert table_text(relation(pa.table({"i": range(100)})), max_rows=5).splitlines()[4:] == [
        "│      0 │",
        "│      1 │",
        "│      2 │",
        "│      · │",
        "│      · │",
        "│      · │",
        "│     98 │",
        "│     99 │",
        "└────────┘",
        " 100 rows (5 shown)",
    ]


@pytest.mark.parametrize("rows", [0, 1, 9, 10, 11, 50])
@pytest.mark.parametrize("batch_rows", [1, 4, 1000])
def test_excerpt_keeps_what_is_shown(rows, batch_rows):
    found = excerpt(relation(pa.table({"i": pa.array(range(rows), pa.int64())}), batch_rows).batches(), 10)
    values = [v for batch in (*found.head, *found.tail) for v in batch.column(0).to_pylist()]
    assert found.rows == rows
    assert values == (list(range(rows)) if rows <= 10 else [0, 1, 2, 3, 4, *range(rows - 5, rows)])


def test_reading_stops_at_the_limit():
    found = excerpt(relation(pa.table({"i": range(1000)})).batches(), 10, read_rows=100)
    assert found.more and 100 <= found.rows < 110


@pytest.mark.parametrize("width", [1, 5, 10, 20, 33, 50, 79, 120, 200])
def test_no_line_is_wider_than_the_terminal(width):
    columns = {f"column number {i}": ["x" * i, "日本" * i] for i in range(12)} | {"n": [1, 2**60]}
    table = pa.table(columns)
    picture = lines(table.column_names, relation(table).sql_types, excerpt(relation(table).batches(), 10), width)
    drawn = ["".join(text for text, _ in line) for line in picture[:-1]]
    assert len({cell_len(line) for line in drawn}) == 1
    assert cell_len(drawn[0]) <= max(width, 9)


def test_columns_left_out_are_counted():
    text = table_text(relation(pa.table({f"column_{i}": ["some long text"] for i in range(30)})), max_width=60)
    assert text.splitlines()[1].count("…") == 1
    assert text.endswith(" 1 row  30 columns (3 shown)")


def test_long_text_is_cut_and_numbers_are_not():
    text = table_text(relation(pa.table({"number": [10**15], "text": ["x" * 100]})), max_width=50)
    assert " 1000000000000000 " in text and "xxx… │" in text


def test_control_characters_do_not_reach_the_terminal():
    assert clean("a\nb\tc\x1b[31m\x07\u2028\u202e") == "a\\nb\\tc\\x1b[31m\\x07\\u2028\\u202e"
    assert "\x1b" not in table_text(relation(pa.table({"\x1bname": ["\x1b[2J"]})))


def test_no_colour_outside_a_terminal(monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    out = io.StringIO()
    assert print_table(relation(pa.table({"x": [None, 1]})), file=out) == 2
    assert "\x1b" not in out.getvalue() and "NULL" in out.getvalue()


def test_ascii_where_the_terminal_knows_no_boxes():
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii", errors="backslashreplace")
    print_table(relation(pa.table({"x": range(9)})), file=out, max_rows=2)
    out.flush()
    assert raw.getvalue().decode("ascii").splitlines()[:2] == ["+--------+", "|   x    |"]


def test_statements_without_a_result():
    out = io.StringIO()
    print_table(of_table((), (), [], message="ok"), file=out)
    assert out.getvalue() == "ok\n"
