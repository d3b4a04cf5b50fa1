"""Small tables that belong together, for joins and subqueries: keys with NULLs, duplicates and no partner, and an empty
one."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa


def _table(schema: dict[str, pa.DataType], rows: list[tuple]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, schema.values(), strict=True)], names=list(schema)
    )


def emp() -> pa.Table:
    """Employees: one department does not exist, some have none, bosses form a tree three levels deep."""
    rows = [
        (1, "ada", 1, None, "100.00", "2015-01-05"), (2, "ben", 1, 1, "80.50", "2016-03-01"),
        (3, "cyd", 2, 1, "80.50", "2016-03-01"), (4, "dan", 2, 3, "60.00", "2019-07-15"),
        (5, "eve", None, 3, "55.25", "2020-02-29"), (6, "fay", 3, 2, None, "2021-11-30"),
        (7, "gus", 9, 2, "40.00", None), (8, "hal", 1, 2, "80.50", "2018-05-05"),
        (9, None, 2, 4, "60.00", "2022-01-01"), (10, "ivy", None, None, None, None),
        (11, "jon", 3, 6, "10.00", "2023-08-08"), (12, "ada", 3, 99, "70.75", "2017-12-24"),
    ]  # fmt: skip
    shaped = [(i, n, d, b, p and Decimal(p), h and dt.date.fromisoformat(h)) for i, n, d, b, p, h in rows]
    return _table(
        {
            "id": pa.int32(),
            "name": pa.string(),
            "dept": pa.int32(),
            "boss": pa.int32(),
            "pay": pa.decimal128(8, 2),
            "hired": pa.date32(),
        },
        shaped,
    )


def dept() -> pa.Table:
    """Departments: one without employees, one without a name, one whose id is NULL."""
    rows = [(1, "sales", "Rome"), (2, "tech", "Oslo"), (3, None, "Rome"), (4, "legal", None), (None, "ghost", "Oslo")]
    return _table({"id": pa.int64(), "name": pa.string(), "city": pa.string()}, rows)


def task() -> pa.Table:
    """Hours of employees on projects: repeated pairs, unknown employees and projects, NULLs."""
    rows = [
        (1, "p1", 5), (1, "p2", 7), (2, "p1", 5), (2, "p1", 3), (3, "p3", None), (4, "p2", 8), (4, "p9", 2),
        (5, "p1", 1), (6, None, 4), (None, "p1", 6), (9, "p3", 9), (42, "p2", 2), (8, "p2", 0), (8, "p3", 11),
        (None, None, None),
    ]  # fmt: skip
    return _table({"emp": pa.int32(), "proj": pa.string(), "hours": pa.int32()}, rows)


def proj() -> pa.Table:
    """Projects: one nobody works on, one without a department."""
    rows = [("p1", 1, 1, 1000), ("p2", 2, 3, 500), ("p3", None, 8, None), ("p4", 3, None, 250)]
    return _table({"id": pa.string(), "dept": pa.int16(), "lead": pa.int32(), "budget": pa.int64()}, rows)


JOINED: dict[str, pa.Table] = {
    "emp": emp(),
    "dept": dept(),
    "task": task(),
    "proj": proj(),
    "ka": _table({"k": pa.int32(), "x": pa.int32()}, [(1, 10), (2, 20), (2, 21), (None, 30), (4, 40), (None, 31)]),
    "kb": _table({"k": pa.int64(), "y": pa.int32()}, [(1, 100), (2, 200), (2, 201), (None, 300), (5, 500)]),
    "kd": _table(
        {"k": pa.int32(), "x": pa.int32(), "y": pa.int32()}, [(1, 10, 100), (2, 99, 200), (7, 7, 7), (None, 30, None)]
    ),
    "stops": _table(
        {"m": pa.int32(), "p": pa.int32()},
        [(1, 0), (2, 10), (3, 20), (4, 21), (5, None), (6, 100), (7, -6), (8, 10), (9, 15)],
    ),
    "spans": _table(
        {"n": pa.int32(), "low": pa.int32(), "high": pa.int32()},
        [
            (1, 0, 10),
            (2, 10, 20),
            (3, 20, 10),
            (4, 15, None),
            (5, None, 30),
            (6, 21, 21),
            (7, -5, 100),
            (8, None, None),
        ],
    ),
    "knone": _table({"k": pa.int32(), "x": pa.int32()}, []),
}
