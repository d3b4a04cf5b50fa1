"""Steps over times in plans that a person wrote: a time that is NULL is an error when it runs, as no query's plan lets
one come that far."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tsql
from tsql.kernels.expr.errors import ExecutionError, TsqlError

ROWS = 20
MINUTE_US = 60_000_000
TABLE = pa.table(
    {
        "a": [i % 3 for i in range(ROWS)],
        "f": pa.array([None if i % 4 == 0 else i * MINUTE_US for i in range(ROWS)], pa.timestamp("us")),
        "g": pa.array([(i + 5) * MINUTE_US for i in range(ROWS)], pa.timestamp("us")),
        "p": pa.array([None if i % 4 == 0 else i // 3 for i in range(ROWS)], pa.int64()),
    }
)
STEPS = {
    "snapshot": ("f", "y = snapshot x by=(a) lifetime=(f, g) span=(s, e) n=count(*)"),
    "rows": ("f", "y = combine x kind=rows over=rows by=(a) slide=1 size=2 first=f start=s end=e id=i n=count(*)"),
    "sessions": (
        "f",
        f"y = combine x kind=session over=rows by=(a) gap={MINUTE_US} first=f last=f start=s end=e n=count(*)",
    ),
    "hops": (
        "p",
        (
            f"y = combine x kind=hop over=rows by=(a) slide=1 size=2 width={MINUTE_US} offset=0 pane=p start=s "
            "end=e n=count(*)"
        ),
    ),
    "panes": (
        "p",
        (
            "q = aggregate x phase=partial by=(a, p) n=count(*)\ny = combine q kind=hop by=(a) slide=1 size=2 "
            f"width={MINUTE_US} offset=0 pane=p start=s end=e n=count(*)"
        ),
    ),
}


@pytest.mark.parametrize("backend", ["local", "interp"])
@pytest.mark.parametrize("name", STEPS)
def test_null_times(name: str, backend: str) -> None:
    column, step = STEPS[name]
    text = (
        "plan version 1\ntarget local shards=2\nt = scan t columns=(a, f, g, p)\n{where}\nx = gather "
        "w\n{step}\noutput y (a, s, e, n)\n"
    )

    def run(where: str) -> list[Any]:
        with tsql.connect(threads=2, backend=backend) as db:
            db.register("t", TABLE)
            return tsql.load_plan_text(text.format(where=f"w = filter t where=({where})", step=step)).run(db).fetchall()

    with pytest.raises(ExecutionError, match=f"step y: the time {column} is NULL in a row"):
        run("true")
    assert run(f"{column} IS NOT NULL")
    assert run("false") == []


@pytest.mark.parametrize("width", ["NULL", "0", "-5"])
@pytest.mark.parametrize("call", ["time_pane(f, {}, 0)", "time_floor(f, {}, 0)", "pane_time(p, {}, 0)"])
def test_panes_without_a_width(call: str, width: str) -> None:
    text = (
        "plan version 1\ntarget local shards=2\nt = scan t columns=(f, p)\nq = aggregate t phase=partial "
        f"by=(k={call.format(width)}) n=count(*)\nx = gather q\ny = aggregate x phase=final by=(k) "
        "n=count(*)\noutput y (k, n)\n"
    )
    with tsql.connect(threads=2) as db, pytest.raises(TsqlError, match="the width of a pane is a constant above zero"):
        db.register("t", TABLE)
        tsql.load_plan_text(text).run(db).fetchall()
