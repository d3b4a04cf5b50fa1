"""Plans that people write: `edited/` holds ways to run one query, all with one answer; `refused/` holds plans that must
not run, each with its error (`<name>.error`, rewritten by `pytest --regen`): the line, what is unmet, and what would
fix it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import tsql
from tests.planner.support import assert_same_rows, golden, oracle, session
from tsql.kernels.expr.errors import PlanError, TsqlError

HERE = Path(__file__).parent
EDITED = sorted((HERE / "edited").glob("*.plan"))
REFUSED = sorted((HERE / "refused").glob("*.plan"))


@pytest.fixture(scope="module")
def db() -> Any:
    return session()


@pytest.mark.parametrize("path", EDITED, ids=lambda path: path.stem)
@pytest.mark.parametrize("backend", ["local", "interp"])
def test_edited(path: Path, backend: str) -> None:
    db = session(backend=backend)
    expected = oracle().sql("SELECT ad_id, count(*) AS n, sum(price) AS s FROM clicks GROUP BY ad_id").to_arrow_table()
    relation = tsql.load_plan(path).run(db)
    assert_same_rows(relation.arrow(), expected)
    assert tsql.load_plan_text(relation.plan()).run(db).plan() == relation.plan(), (
        "what was written is printed, and read, as it is"
    )


def test_what_is_written_runs(db: Any) -> None:
    """A person's edit is never undone: the steps are those of the file, in its order and by its names."""
    for path in EDITED:
        written = [
            line.split("=")[0].strip()
            for line in path.read_text().splitlines()
            if " = " in line and not line.startswith("#")
        ]
        planned = [step.name for step in tsql.load_plan(path).bind(db).root.walk()]
        assert planned == written


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: path.stem)
def test_refused(path: Path, db: Any, regen: bool) -> None:
    with pytest.raises(PlanError) as caught:
        tsql.load_plan_text(path.read_text(), path.name).run(db)
    golden(path.with_suffix(".error"), f"{caught.value}\n", regen)
    assert caught.value.line_column is not None, "every error has its line"


def test_cut_and_damaged_plans(db: Any) -> None:
    """A plan file cut or changed anywhere runs, or ends with an error of ours."""
    source = random.Random(7)
    for path in EDITED[:4]:
        text = path.read_text()
        damaged = [text[:at] for at in range(0, len(text), 7)]
        for _ in range(200):
            at = source.randrange(len(text))
            damaged.append(
                text[:at]
                + source.choice(["", "(", ")", "'", '"', "=", "#", "\n", "x", "\0", ","])
                + text[at + source.randrange(3) :]
            )
        for each in damaged:
            try:
                tsql.load_plan_text(each).bind(db)
            except TsqlError:
                continue
