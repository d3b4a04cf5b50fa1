"""docs/spark.md: its plan is the one that the planner makes, `explain analyze` prints what the page shows up to
numbers, and its picture is drawn from the plan. `pytest --regen` writes plan and picture anew.

The Python of the page: tests/spark/test_readme.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsql
from tests.docs.test_temporal import figures
from tests.spark.cluster import InProcess

PAGE = figures.SPARK_PAGE
QUERY = (
    "SELECT owner, median(price) AS m FROM 'clicks/*.parquet' JOIN 'ads.parquet' USING (ad) GROUP BY owner ORDER BY m"
)


def block(name: str) -> str:
    """A fenced block of the page that has a name."""
    found = re.search(rf"^<!-- {name} -->\n```\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def write_tables(folder: Path) -> None:
    """The files that the query of the page reads."""
    (folder / "clicks").mkdir()
    for number in range(4):
        ids = range(number * 20_000, (number + 1) * 20_000)
        rows = pa.table({"ad": [i % 50 for i in ids], "price": [float(i % 17) for i in ids]})
        pq.write_table(rows, folder / "clicks" / f"{number}.parquet")
    ads = pa.table({"ad": list(range(50)), "owner": [f"owner {i % 7}" for i in range(50)]})
    pq.write_table(ads, folder / "ads.parquet")


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path)
    with tsql.connect(spark=InProcess(4)) as session:
        yield session


def test_plan(db: Any, regen: bool) -> None:
    found = db.sql(QUERY).plan()
    if regen:
        PAGE.write_text(PAGE.read_text(encoding="utf-8").replace(block("plan"), found), encoding="utf-8")
    assert block("plan") == found


def shape(text: str) -> list[str]:
    """Lines without numbers. Pipelines come in the order in which tasks end."""
    return sorted(re.sub(r"\d[\d,.]*", "0", line).replace(" k", "").split() for line in text.splitlines())


def test_analyze(db: Any) -> None:
    assert shape(block("analyze")) == shape(db.sql(QUERY).explain("analyze"))


@pytest.mark.parametrize("name", figures.SPARK_FIGURES)
def test_picture(name: str, regen: bool) -> None:
    path, drawn = figures.FOLDER / f"{name}.svg", figures.SPARK_FIGURES[name]({})
    if regen:
        path.write_text(drawn, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == drawn
    assert f"](figures/{name}.svg)" in PAGE.read_text(encoding="utf-8")


def test_parts() -> None:
    """What the picture shows is how the plan is cut."""
    parts = figures.plan_parts(figures.plan_steps(block("plan")))
    assert [part[-1].name for part in parts] == ["placed", "gathered", "sorted"]
