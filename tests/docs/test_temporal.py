"""docs/temporal.md: every query gives the rows below it, here and in DuckDB where it can say it, and every picture is
drawn from these rows.

`pytest --regen` writes the rows and the pictures anew. A query with a construct that has no plan yet is asked of DuckDB
alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlglot.errors import UnsupportedError

import tsql
from tests.docs.drawing import ROOT, drawing
from tests.duck import empty_duckdb
from tsql.grammar.generator import to_duckdb

figures = drawing("figures")
TEXT = figures.PAGE.read_text(encoding="utf-8")
PAGE = figures.blocks(TEXT)
SETUP = [block for block in PAGE.values() if re.match(r"(CREATE|COPY|INSERT)\b", block.sql)]
QUERIES = [block for block in PAGE.values() if block not in SETUP]
PROGRESSIVE = set(drawing("figures_progressive").FIGURES)
"""The pictures of another page."""
PERIODS = {"rates": ("vs", "ve")}
ONLY_HERE = {"show_streams"}
"""What DuckDB has no word for, and no meaning."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page")


@pytest.fixture
def db(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.chdir(folder)
    with tsql.connect(threads=2) as session:
        for block in SETUP:
            session.execute(block.sql)
        yield session


def ours(db: Any, block: Any) -> str:
    """Our answer as the page shows it."""
    relation = db.sql(block.sql)
    return figures.table_text(relation.columns, relation.fetchall())


def theirs(block: Any, folder: Path) -> str | None:
    """DuckDB's answer; None where it cannot say it."""
    with empty_duckdb() as connection:
        for setup in SETUP:
            for statement in filter(str.strip, setup.sql.split(";")):
                if not statement.strip().startswith("COPY"):
                    connection.execute(to_duckdb(statement, PERIODS))
        connection.execute("INSERT INTO bid_log SELECT * FROM bids")
        try:
            found = connection.sql(to_duckdb(block.sql.rstrip().rstrip(";"), PERIODS))
        except UnsupportedError:
            return None
        return figures.table_text(found.columns, found.fetchall())


@pytest.mark.parametrize("block", QUERIES, ids=lambda block: block.name)
def test_query(db: Any, block: Any, folder: Path, regen: bool) -> None:
    found = ours(db, block)
    oracle = None if block.name in ONLY_HERE else theirs(block, folder)
    if regen:
        _write(block, found)
        return
    assert block.shown is not None, "the page shows no rows: pytest --regen writes them"
    if oracle is not None:
        assert oracle == block.shown
    assert found == block.shown


def _write(block: Any, shown: str) -> None:
    figures.PAGE.write_text(
        figures.with_rows(figures.PAGE.read_text(encoding="utf-8"), block.name, shown), encoding="utf-8"
    )


@pytest.mark.parametrize("name", figures.FIGURES)
def test_picture(name: str, regen: bool) -> None:
    path = figures.FOLDER / f"{name}.svg"
    if regen:
        path.write_text(
            figures.FIGURES[name](figures.blocks(figures.PAGE.read_text(encoding="utf-8"))), encoding="utf-8"
        )
    assert path.read_text(encoding="utf-8") == figures.FIGURES[name](
        figures.blocks(figures.PAGE.read_text(encoding="utf-8"))
    )
    assert f"](figures/{name}.svg)" in TEXT


def test_the_page_is_whole() -> None:
    """Every SQL block has a name, every picture that is named is drawn, every file that is linked is there."""
    assert len(re.findall(r"^```sql$", TEXT, re.MULTILINE)) == len(PAGE) > 20
    assert (
        set(re.findall(r"\(figures/(\w+)\.svg\)", TEXT))
        == set(figures.FIGURES)
        == {path.stem for path in figures.FOLDER.glob("*.svg")} - set(figures.SPARK_FIGURES) - PROGRESSIVE
    )
    assert {path for path in re.findall(r"\]\(([\w./]+)", TEXT) if not (ROOT / "docs" / path).exists()} == set()
    assert {path for path in re.findall(r"`(\w+\.py)`", TEXT) if not (ROOT / "examples" / path).exists()} == set()
