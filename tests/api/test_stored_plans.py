"""Plans and programs that one session leaves on disk for the next: found where they hold, made anew where they do
not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tsql
from tests.cache_entries import entries
from tsql import plan_store
from tsql.catalog import catalog
from tsql.kernels.codegen.kir import parse
from tsql.kernels.codegen.llvm import FULL, compiler
from tsql.kernels.codegen.object_cache import flush
from tsql.kernels.codegen.render import render
from tsql.kernels.emit import pipeline, program_store
from tsql.kernels.expr.errors import TsqlError
from tsql.tpch.data import tables
from tsql.tpch.queries import NUMBERS, query

QUERY = "SELECT k, sum(v) AS total FROM t WHERE v > 10 GROUP BY k ORDER BY k"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TSQL_STORED_PLANS", "1")
    monkeypatch.setenv("TSQL_CACHE", str(tmp_path))
    yield tmp_path


class Analyses:
    """Counts how often a text is analyzed, and how often a pipeline is emitted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from tsql.analyze import statements as analyze

        self.texts: list[str] = []
        self.emitted = 0
        real, emitted = analyze.analyze, pipeline.Pipeline._emitted

        def counted(text: str, *rest: object) -> object:
            self.texts.append(text)
            return real(text, *rest)

        def emit(own: pipeline.Pipeline) -> object:
            self.emitted += 1
            return emitted(own)

        monkeypatch.setattr(analyze, "analyze", counted)
        monkeypatch.setattr(pipeline.Pipeline, "_emitted", emit)

    def of(self, query: str) -> int:
        return self.texts.count(query)


@pytest.fixture
def analyses(monkeypatch: pytest.MonkeyPatch) -> Analyses:
    return Analyses(monkeypatch)


def session(values: str = "range % 3 AS k, range AS v", rows: int = 100, **settings: object) -> tsql.Session:
    db = tsql.connect(threads=2, **settings)
    db.sql(f"CREATE TABLE t AS SELECT {values} FROM range({rows})")
    return db


def test_the_next_session_neither_analyzes_nor_emits(analyses: Analyses) -> None:
    expected = session().sql(QUERY).fetchall()
    db, before = session(), analyses.emitted
    assert db.sql(QUERY).fetchall() == expected
    assert analyses.of(QUERY) == 1
    assert analyses.emitted == before


def test_nothing_of_tpch_is_emitted_again(analyses: Analyses) -> None:
    """Filters, joins, groups of all kinds, sorts and limits: whatever a pipeline has, the next process finds its
    program."""
    counts, answers = [], []
    for _ in range(2):
        db, before = tsql.connect(threads=2), analyses.emitted
        for table, path in tables(0.001).items():
            db.sql(f"CREATE TABLE {table} AS SELECT * FROM '{path}'")
        loaded = analyses.emitted
        answers.append([db.sql(query(number, 0.001)).fetchall() for number in NUMBERS])
        counts.append((loaded - before, analyses.emitted - loaded))
    assert answers[0] == answers[1]
    assert counts[0][1] > 100 and counts[1][1] == 0


def test_positions_in_errors_are_those_of_the_text() -> None:
    query = "SELECT\n  k, 1 // (v - 50)::TINYINT FROM t;"
    errors = []
    for _ in range(2):
        with pytest.raises(TsqlError) as caught:
            session(rows=1000).sql(query).fetchall()
        errors.append((str(caught.value), caught.value.position, caught.value.text))
    assert errors[0] == errors[1]
    assert errors[0][1] is not None


@pytest.mark.parametrize(
    "other",
    [
        {"rows": 101},
        {"values": "range % 4 AS k, range AS v"},
        {"values": "range % 3 AS k, range::DOUBLE AS v"},
        {"values": "range % 3 AS k, CASE WHEN range <> 7 THEN range END AS v"},
        {"optimizer": False},
    ],
)
def test_other_tables_and_settings_make_another_plan(other: dict[str, object], analyses: Analyses) -> None:
    session().sql(QUERY).fetchall()
    db = session(**other)
    found = db.sql(QUERY).fetchall()
    assert analyses.of(QUERY) == 2
    monkey = tsql.connect(threads=1)
    monkey.register("t", db.table("t").arrow())
    assert found == monkey.sql(QUERY).fetchall()


def test_a_view_a_macro_and_a_definition_count(analyses: Analyses) -> None:
    query = "SELECT count(*), sum(twice(v)) FROM w"

    def prepared(condition: str, factor: int) -> tsql.Session:
        db = session()
        db.sql(f"CREATE VIEW w AS SELECT * FROM t WHERE {condition}")
        db.sql(f"CREATE MACRO twice(x) AS x * {factor}")
        return db

    assert prepared("v < 10", 2).sql(query).fetchall() == [(10, 90)]
    assert prepared("v < 10", 2).sql(query).fetchall() == [(10, 90)]
    assert analyses.of(query) == 1
    assert prepared("v < 20", 2).sql(query).fetchall() == [(20, 380)]
    assert prepared("v < 20", 3).sql(query).fetchall() == [(20, 570)]
    assert analyses.of(query) == 3


def test_a_name_that_was_missing_and_is_there_now() -> None:
    query = "WITH t AS (SELECT 1 AS v) SELECT v FROM t"
    assert tsql.connect().sql(query).fetchall() == [(1,)]
    assert session().sql(query).fetchall() == [(1,)]


def test_files_and_registered_data_are_looked_at_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    for count in (3, 5):
        db = tsql.connect()
        db.sql(f"SELECT * FROM range({count})").write(path)
        assert db.sql(f"SELECT count(*) FROM '{path}'").fetchall() == [(count,)]
        db.register("given", {"a": list(range(count))})
        assert db.sql("SELECT count(*) FROM given").fetchall() == [(count,)]


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as old enough to keep plans over them."""
    monkeypatch.setattr(catalog, "SETTLED_NS", 0)


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_files_that_are_as_they_were_are_not_analyzed_again(
    kind: str, tmp_path: Path, analyses: Analyses, settled: None
) -> None:
    path = tmp_path / f"rows.{kind}"
    tsql.connect().sql("SELECT range AS a, range % 2 AS b FROM range(10)").write(path)
    query = f"SELECT b, sum(a) FROM '{path}' GROUP BY b ORDER BY b"
    for _ in range(3):
        assert tsql.connect(threads=2).sql(query).fetchall() == [(0, 20), (1, 25)]
    assert analyses.of(query) == 1
    for rows, expected in ((8, [(0, 12), (1, 16)]), (9, [(0, 20), (1, 16)])):
        tsql.connect().sql(f"SELECT range AS a, range % 2 AS b FROM range({rows})").write(path)
        assert tsql.connect(threads=2).sql(query).fetchall() == expected
    assert analyses.of(query) == 3
    path.unlink()
    messages = []
    for _ in range(2):
        with pytest.raises(TsqlError) as caught:
            tsql.connect(threads=2).sql(query)
        messages.append(str(caught.value))
    assert messages[0] == messages[1] and str(path) in messages[0]


def test_a_session_that_has_found_a_plan_sees_that_its_file_changes(tmp_path: Path, settled: None) -> None:
    path = tmp_path / "rows.parquet"
    tsql.connect().sql("SELECT range AS a FROM range(10)").write(path)
    query = f"SELECT sum(a) FROM '{path}'"
    tsql.connect().sql(query).fetchall()
    db = tsql.connect()
    assert db.sql(query).fetchall() == [(45,)]
    db.sql("SELECT range AS a FROM range(5)").write(path)
    assert db.sql(query).fetchall() == [(10,)]


def test_patterns_options_and_a_file_that_is_named_twice(tmp_path: Path, analyses: Analyses, settled: None) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("x;y\n1;2\n3;4\n")
    query = (
        f"SELECT count(*), sum(l.x), min(r.y) FROM read_csv('{tmp_path}/*.csv', delim => ';') l "
        f"JOIN read_csv('{tmp_path}/*.csv', delim => ';') r USING (x)"
    )
    assert [tsql.connect(threads=2).sql(query).fetchall() for _ in range(2)] == [[(8, 16, 2)]] * 2
    assert analyses.of(query) == 1
    (tmp_path / "c.csv").write_text("x;y\n3;0\n")
    assert tsql.connect(threads=2).sql(query).fetchall() == [(13, 31, 0)]
    assert analyses.of(query) == 2


def test_files_that_have_just_changed_are_looked_at_again(
    tmp_path: Path, analyses: Analyses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another write in the same tick of the file system would leave no trace."""
    monkeypatch.setattr(catalog, "SETTLED_NS", 3600 * 10**9)
    path = tmp_path / "rows.csv"
    path.write_text("a\n1\n")
    query = f"SELECT sum(a) FROM '{path}'"
    for _ in range(2):
        assert tsql.connect().sql(query).fetchall() == [(1,)]
    assert analyses.of(query) == 2


def test_rows_that_are_left_out_are_told_each_time(tmp_path: Path, analyses: Analyses, settled: None) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a\n1\nx\n")
    query = f"SELECT sum(a) FROM read_csv('{path}', columns => {{'a': 'INTEGER'}}, store_rejects => true)"
    for _ in range(2):
        db = tsql.connect()
        assert db.sql(query).fetchall() == [(1,)]
        assert db.sql("SELECT count(*) FROM reject_errors").fetchall() == [(1,)]
    assert analyses.of(query) == 2


def test_parameters_are_checked_and_used(analyses: Analyses) -> None:
    query = "SELECT count(*) FROM t WHERE v < ?"
    assert session().sql(query, [10]).fetchall() == [(10,)]
    assert session().sql(query, [20]).fetchall() == [(20,)]
    assert analyses.of(query) == 1
    with pytest.raises(TsqlError, match="no value for the parameter"):
        session().sql(query)
    assert session().sql(query, [9.5]).fetchall() == [(10,)]
    assert analyses.of(query) >= 2


def test_explain_of_a_stored_plan(analyses: Analyses) -> None:
    first, second = session(), session()
    texts = []
    for db in (first, second):
        relation = db.sql(QUERY)
        relation.fetchall()
        db.sql("DROP TABLE t")
        texts.append([relation.explain(level) for level in ("logical", "physical", "pipelines", "kir")])
    assert texts[0] == texts[1]


def test_damaged_entries_are_ignored_and_written_again(cache: Path, analyses: Analyses) -> None:
    expected = session().sql(QUERY).fetchall()
    flush()
    for path in entries(cache):
        data = path.read_bytes()
        path.write_bytes(data[:32] + data[32:60] + b"?" + data[61:])
    assert session().sql(QUERY).fetchall() == expected
    assert session().sql(QUERY).fetchall() == expected
    assert analyses.of(QUERY) == 2


def test_entries_of_another_shape_are_ignored(monkeypatch: pytest.MonkeyPatch, analyses: Analyses) -> None:
    expected = session().sql(QUERY).fetchall()
    for store in (plan_store, program_store):
        real = store.read_entry
        monkeypatch.setattr(
            store, "read_entry", lambda *which, real=real: b'{"depends": {}}\n[1]' if real(*which) else None
        )
    assert session().sql(QUERY).fetchall() == expected
    assert analyses.of(QUERY) == 2


def test_a_transaction_that_has_failed_refuses_a_stored_plan() -> None:
    session().sql(QUERY).fetchall()
    db = session()
    db.sql("BEGIN")
    with pytest.raises(TsqlError):
        db.sql("SELECT nothing FROM nowhere")
    with pytest.raises(TsqlError, match="aborted"):
        db.sql(QUERY)


def test_dictionaries_of_strings_count(analyses: Analyses) -> None:
    query = "SELECT name, count(*) FROM t WHERE name >= 'b' GROUP BY name ORDER BY name"
    for letters, expected in (
        ("abc", [("b", 3), ("c", 3)]),
        ("abd", [("b", 3), ("d", 3)]),
        ("abc", [("b", 3), ("c", 3)]),
    ):
        db = session(values=f"'{letters}'[range % 3 + 1] AS name", rows=9)
        assert db.sql(query).fetchall() == expected


def test_none_of_it_without_a_cache(monkeypatch: pytest.MonkeyPatch, analyses: Analyses) -> None:
    monkeypatch.setenv("TSQL_CACHE", "")
    for _ in range(2):
        assert len(session().sql(QUERY).fetchall()) == 3
    assert analyses.of(QUERY) == 2


def test_a_known_module_can_be_compiled_after_all() -> None:
    """As the promoter does, with a program that an earlier process has emitted."""
    module = parse("func @main(%0: ptr, %1: ptr, %2: i64) -> void {\n  ret\n}\n")
    known = program_store.KnownModule(module.fingerprint(), lambda: module)
    assert render(known) == render(module)
    assert compiler().compile(known, FULL).address
