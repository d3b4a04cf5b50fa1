"""Errors of statements that are found when these run: they show the name or the option that is wrong, in its line."""

from __future__ import annotations

import pytest

import tsql

CASES = [
    ("SELECT 1,\n  $x", (2, 3), "no value for the parameter $x"),
    ("SELECT ?, ?", (1, 8), "no value for the parameters $1, $2"),
    ("SELECT 1; SELECT $b, $a", (1, 18), "no value for the parameters $b, $a"),
    ("DROP TABLE nosuch", (1, 12), 'Table with name "nosuch" does not exist'),
    ("SELECT 1;\nDROP VIEW nosuch", (2, 11), 'View with name "nosuch" does not exist'),
    ("DROP STREAM nosuch", (1, 13), 'Stream with name "nosuch" does not exist'),
    ("DROP MACRO nosuch", (1, 12), 'Macro Function with name "nosuch" does not exist'),
    ("DROP VIEW t", (1, 11), 'Existing object "t" is of type Table, trying to drop type View'),
    ("DROP TABLE other.t", (1, 12), 'schema "other" does not exist'),
    ("CREATE TABLE t (b INTEGER)", (1, 14), 'Table with name "t" already exists'),
    ("CREATE OR REPLACE VIEW t AS SELECT 1", (1, 24), 'Existing object "t" is of type Table'),
    ("ALTER TABLE t RENAME TO v", (1, 25), 'Could not rename "t" to "v"'),
    ("SET nosuch = 1", (1, 5), "unknown setting nosuch"),
    ("RESET nosuch", (1, 7), "unknown setting nosuch"),
    ("EXECUTE PLAN '/nosuch/q.plan'", (1, 14), "cannot read /nosuch/q.plan"),
    ("COPY t TO '/nosuch/x.csv'", (1, 11), "cannot write /nosuch/x.csv"),
    ("COPY t TO 'x.csv' (FORMAT nosuch)", (1, 20), 'Copy Function with name "nosuch" does not exist'),
    ("COPY t TO 'x.csv' (HEADER true, nosuch 1)", (1, 33), 'unrecognized option "nosuch" for COPY TO csv'),
    ("COPY t TO 'x.csv' (HEADER 5)", (1, 20), "header is true or false, not 5"),
    ("COPY t TO 'x.csv' (DELIMITER 'ab')", (1, 20), "delimiter is one plain character"),
    ("COPY t TO 'x.parquet' (COMPRESSION 'nosuch')", (1, 24), "unknown compression nosuch for parquet"),
    ("COPY t TO 'x.parquet' (PARTITION_BY (nosuch))", (1, 24), 'partition_by: there is no column "nosuch"'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place", "message"), CASES, ids=[case[0] for case in CASES])
def test_place(text, place, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with tsql.connect() as db:
        db.sql("CREATE TABLE t (a INTEGER)")
        db.sql("CREATE VIEW v AS SELECT 1 AS x")
        with pytest.raises(tsql.TsqlError) as caught:
            db.execute(text)
    assert caught.value.message.startswith(message)
    assert caught.value.line_column == place
    assert "^" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_stream(tmp_path):
    with tsql.connect() as db:
        db.sql(f"COPY (SELECT TIMESTAMP '2020-01-01' AS ts) TO '{tmp_path}/x.parquet'")
        db.sql("CREATE TABLE t (a INTEGER)")
        with pytest.raises(tsql.TsqlError, match="already exists") as caught:
            db.sql(
                "CREATE STREAM t (ts TIMESTAMP, WATERMARK FOR ts AS ts) WITH (connector = 'parquet', path "
                f"= '{tmp_path}/x.parquet')"
            )
    assert caught.value.line_column == (1, 15)
