"""Plan files on disk: how they may begin, what is shown of files that are none, and which files are never written
over."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import tsql
from tests.planner.support import session
from tsql.cli.command import main
from tsql.kernels.expr.errors import PlanError, SourceError

QUERY = "SELECT ad_id, count(*) AS n FROM clicks GROUP BY ad_id"


@pytest.fixture(scope="module")
def db() -> Any:
    return session()


def test_a_byte_order_mark(db: Any, tmp_path: Path) -> None:
    """Some editors put one in front of UTF-8."""
    path = tmp_path / "marked.plan"
    relation = db.sql(QUERY)
    path.write_text(relation.plan(), encoding="utf-8-sig")
    assert sorted(tsql.load_plan(path).run(db).fetchall()) == sorted(relation.fetchall())
    assert sorted(db.sql(f"EXECUTE PLAN '{path}'").fetchall()) == sorted(relation.fetchall())
    assert sorted(tsql.load_plan_text("\ufeff" + relation.plan()).run(db).fetchall()) == sorted(relation.fetchall())


@pytest.mark.parametrize(
    "text",
    [
        "root:x:0:0:secret",
        "secret",
        "SELECT 'secret'",
        "'secret\nplan version 1",
        "plan versions: secret",
        "# a secret\nsecret",
        "",
        "\0secret",
    ],
)
def test_other_files_are_not_shown(text: str, db: Any, tmp_path: Path) -> None:
    """EXECUTE PLAN reads what the process may read; what a file holds that is no plan is nobody's business."""
    path = tmp_path / "notes.txt"
    path.write_text(text)
    for read in (lambda: db.sql(f"EXECUTE PLAN '{path}'").fetchall(), lambda: tsql.load_plan(path)):
        with pytest.raises(PlanError) as caught:
            read()
        assert "is no plan file" in str(caught.value)
        assert "secret" not in str(caught.value)


def test_a_file_without_end(db: Any) -> None:
    with pytest.raises(PlanError, match="/dev/zero is no plan file"):
        db.sql("EXECUTE PLAN '/dev/zero'")


def test_bytes_that_are_no_text(db: Any, tmp_path: Path) -> None:
    path = tmp_path / "bytes.plan"
    path.write_bytes(b'plan version 1\nquery "\xff"\n')
    with pytest.raises(PlanError, match="not UTF-8"):
        tsql.load_plan(path)
    with pytest.raises(SourceError, match="cannot read"):
        tsql.load_plan(tmp_path)


def test_another_version(db: Any, tmp_path: Path) -> None:
    path = tmp_path / "later.plan"
    path.write_text("plan version 2\n")
    with pytest.raises(PlanError, match="a plan file starts with `plan version 1`") as caught:
        tsql.load_plan(path).run(db)
    assert caught.value.line_column == (1, 1)


def test_compiled_over_a_plan_file(db: Any, tmp_path: Path) -> None:
    path = tmp_path / "q.plan"
    db.execute(f"COMPILE PLAN '{path}' FOR SELECT 1 AS x")
    path.write_text("# made last week\n\n" + path.read_text())
    db.execute(f"COMPILE PLAN '{path}' FOR SELECT 2 AS x")
    assert db.sql(f"EXECUTE PLAN '{path}'").fetchall() == [(2,)]
    path.write_text("")
    db.execute(f"COMPILE PLAN '{path}' FOR SELECT 3 AS x")
    assert db.sql(f"EXECUTE PLAN '{path}'").fetchall() == [(3,)]


@pytest.mark.parametrize("content", [b"name,age\nx,1\n", b"\x00\x01PAR1", b"SELECT 1", "plän".encode("latin-1")])
def test_other_files_are_not_written_over(content: bytes, db: Any, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes(content)
    with pytest.raises(PlanError, match="is there, and is no plan file"):
        db.execute(f"COMPILE PLAN '{path}' FOR SELECT 1 AS x")
    assert path.read_bytes() == content
    assert main(["plan", "SELECT 1 AS x", "-o", str(path)]) == 1
    assert "is there, and is no plan file" in capsys.readouterr().err
    assert path.read_bytes() == content


def test_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    """A pipe is there, and holds nothing that could be lost."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert main(["plan", "SELECT 1 AS x", "-o", str(path)]) == 0
        assert os.read(end, 1 << 16).startswith(b"plan version 1\n")
    finally:
        os.close(end)


def test_a_file_that_cannot_be_written(db: Any, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "q.plan"):
        with pytest.raises(PlanError, match="cannot write"):
            db.execute(f"COMPILE PLAN '{path}' FOR SELECT 1 AS x")
