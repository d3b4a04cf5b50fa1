"""docs/architecture.md walks one query through every stage; the text of each stage is made again here and compared.

A block is marked `<!-- stage: name -->` before its fence. `pytest --regen` rewrites the blocks.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

import tsql
from tests.planner.support import logical_plan
from tsql.backends import Run
from tsql.backends.explain import pipelines
from tsql.kernels.codegen.render import render
from tsql.planner import make_plan
from tsql.planner.logical.nodes import show
from tsql.planner.rules import optimize

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
BLOCK = re.compile(r"(<!-- stage: (\w+) -->\n```\w*\n)(.*?)(^```$)", re.MULTILINE | re.DOTALL)
SQL = """SELECT ad_id, count(*) AS n, sum(price) AS spend
FROM clicks
WHERE price > 1 + 1
GROUP BY ad_id
"""
CLICKS = pa.table(
    {
        "ad_id": pa.array([1, 2, 1, 3, 1, 2], pa.int64()),
        "price": pa.array([5, 7, 1, 2, 4, 8], pa.int64()),
        "country": ["DE", "DE", "FR", "DE", "DE", "NZ"],
    }
)


def stages() -> dict[str, str]:
    """The text of every stage."""
    db = tsql.connect(threads=2)
    db.register("clicks", CLICKS)
    query = logical_plan(db, SQL)
    plan = make_plan(query, db.settings, shards=2)
    relation = db.sql(SQL)
    kernel = pipelines(plan, Run(settings=db.settings))[0].emit().module
    table = relation.arrow().sort_by("ad_id")
    rows = "\n".join(", ".join(map(str, row.values())) for row in table.to_pylist())
    return {
        "sql": SQL,
        "logical": show(query) + "\n",
        "optimized": show(optimize(query)) + "\n",
        "physical": make_text(relation.explain("physical")),
        "pipelines": relation.explain("pipelines"),
        "kir": first_branch(kernel.text(), "when "),
        "llvm": llvm_row(render(kernel)),
        "rows": ", ".join(table.column_names) + "\n" + rows + "\n",
    }


def make_text(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.rstrip().split("\n") if not line.startswith("query ")) + "\n"


def first_branch(text: str, opening: str) -> str:
    """The first block of KIR that begins so, with its indentation taken off: what is done for a row that passes the
    filter."""
    lines = text.split("\n")
    start = next(i for i, line in enumerate(lines) if line.lstrip().startswith(opening))
    depth = len(lines[start]) - len(lines[start].lstrip())
    end = next(i for i in range(start + 1, len(lines)) if lines[i] == " " * depth + "}")
    return "\n".join(line[depth:] for line in lines[start - 1 : end + 1]) + "\n"


def llvm_row(text: str) -> str:
    """The LLVM of the comparison that decides about the row, and of the branch on it."""
    lines = text.split("\n")
    at = next(i for i, line in enumerate(lines) if "icmp sgt i64" in line)
    return "\n".join(line.strip() for line in lines[at - 3 : at + 8]) + "\n"


def test_every_stage_is_as_shown(regen: bool) -> None:
    expected = stages()
    page = PAGE.read_text(encoding="utf-8")
    if regen:
        PAGE.write_text(BLOCK.sub(lambda m: m[1] + expected[m[2]] + m[4], page), encoding="utf-8")
        return
    shown = {name: text for _, name, text, _ in BLOCK.findall(page)}
    assert shown.keys() == expected.keys()
    for name, text in expected.items():
        assert shown[name] == text, name


def test_paths() -> None:
    """Every file and folder that the page names is there."""
    page = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:tsql|planner|kernels|backends|tpch|tests|bench|docs|examples)/[\w./]*)`", page))
    assert len(named) > 20
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_folders() -> None:
    """Every folder of the project has its paragraph."""
    page = PAGE.read_text(encoding="utf-8")
    folders = {
        path.name
        for path in ROOT.iterdir()
        if path.is_dir() and not path.name.startswith((".", "_")) and (path / "__init__.py").exists()
    }
    assert {name for name in folders if f"**`{name}/`**" not in page} == set()


def test_is_read_in_ten_minutes() -> None:
    assert len(PAGE.read_text(encoding="utf-8").splitlines()) <= 250
