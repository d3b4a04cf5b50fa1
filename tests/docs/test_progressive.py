"""docs/progressive.md: its Python prints what the page shows, its queries end with the rows of the plain query and of
DuckDB, its command lines run, and its pictures are drawn from runs.

`pytest --regen` writes the pictures anew."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.test_docs import matches, standard_input
from tests.docs.drawing import ROOT, drawing
from tests.duck import empty_duckdb
from tsql.cli.command import main
from tsql.grammar.generator import to_duckdb
from tsql.tpch.measure import difference

figures = drawing("figures_progressive")
PAGE = ROOT / "docs" / "progressive.md"
TEXT = PAGE.read_text(encoding="utf-8")
FENCED = re.findall(r"^```(\w*)\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", TEXT, re.MULTILINE | re.DOTALL)
QUERIES = [text for language, text, _ in FENCED if language == "sql"]


class Drawn:
    """Stands for what readers have on their side: it takes what it is given."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    async def send(self, table: Any) -> None:
        self.given.append(table)

    def draw(self, frame: Any) -> None:
        self.given.append(frame)


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """The page's Python, run from its first block to its last, with what each block has printed."""
    folder = tmp_path_factory.mktemp("page")
    drawn, printed = Drawn(), []
    lines: list[str] = []
    names: dict[str, Any] = {
        "chart": drawn,
        "send": drawn.send,
        "print": lambda *what: lines.extend(" ".join(map(str, what)).splitlines()),
    }
    with inside(folder):
        for code in (text for language, text, _ in FENCED if language == "python"):
            code = code.replace("tsql.connect()", "tsql.connect(threads=1)")
            found = eval(compile(code, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
            if inspect.iscoroutine(found):
                asyncio.run(found)
            printed.append(list(lines))
            lines.clear()
    yield SimpleNamespace(db=names["db"], folder=folder, printed=printed, drawn=drawn)
    names["db"].close()


def test_python(ran: Any) -> None:
    shown = [expected for language, _, expected in FENCED if language == "python"]
    assert sum(map(bool, shown)) > 4 and len(ran.drawn.given) > 10
    for printed, expected in zip(ran.printed, shown, strict=True):
        assert matches(printed, expected.splitlines()), "\n".join(printed)


@pytest.mark.parametrize("sql", QUERIES, ids=range(len(QUERIES)))
def test_queries(ran: Any, sql: str) -> None:
    """All snapshots come, and the last one has the rows of the plain query, here and in DuckDB."""
    plain = re.sub(r"\s+PROGRESSIVE\b.*", "", sql, flags=re.DOTALL)
    *_, last = ran.db.sql(sql).snapshots()
    assert last.is_final and last.progress == 1.0
    for expected in (ran.db.sql(plain).arrow(), _theirs(ran, plain)):
        if expected is not None:
            assert (why := difference(expected, last.table, ordered="ORDER BY" in plain)) is None, why


def _theirs(ran: Any, sql: str) -> Any:
    """DuckDB's answer; None for what only this engine has a word for."""
    if re.search("_bound|is_certain", sql):
        return None
    with empty_duckdb() as connection:
        connection.register("hits", ran.db.sql("SELECT * FROM hits").arrow())
        return connection.sql(to_duckdb(sql)).to_arrow_table()


def test_command_lines(ran: Any, capfd: pytest.CaptureFixture[str]) -> None:
    (block,) = [text for language, text, _ in FENCED if language == "console"]
    asked = [one.splitlines() for one in block.removeprefix("$ ").split("\n$ ")]
    assert len(asked) == 2
    with inside(ran.folder):
        for command, *expected in asked:
            with standard_input(""):
                assert main(shlex.split(command)[1:]) == 0
            assert matches(capfd.readouterr().out.splitlines(), expected), command


@pytest.fixture(scope="module")
def data() -> Any:
    return figures.Data()


@pytest.mark.parametrize("name", figures.FIGURES)
def test_picture(name: str, data: Any, regen: bool) -> None:
    path, drawn = figures.FOLDER / f"{name}.svg", figures.FIGURES[name](data)
    if regen:
        path.write_text(drawn, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == drawn
    assert f"](figures/{name}.svg)" in TEXT.replace("\n", " ")


def test_the_page_is_whole() -> None:
    """Each picture is drawn, and the table of the coverage has its place."""
    assert set(re.findall(r"\(figures/(\w+)\.svg\)", TEXT)) == set(figures.FIGURES)
    assert TEXT.index("<!-- coverage -->") < TEXT.index("<!-- /coverage -->")
