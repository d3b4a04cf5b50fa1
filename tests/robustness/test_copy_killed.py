"""COPY in a process that is killed at any time: the target is the old file or the whole new one, and the next COPY
removes what was left."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import tsql
from tsql.statements.copying import copy_to

SCRIPT = """
import json, sys
from tsql.statements.copying import copy_to
from tsql.kernels.expr.types import BIGINT
from tsql.relation import of_table

target, options, first = sys.argv[1:]
for version in range(int(first), 1_000_000):
    columns = [[i // 100 for i in range(400)], list(range(400)), [version] * 400]
    rows = of_table(("k", "i", "version"), (BIGINT,) * 3, columns)
    copy_to(rows, target, json.loads(options))
    print(version, flush=True)
"""
"""What COPY does, without the engine, which takes a second to start."""


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("t.csv", {}),
        ("t.parquet", {"row_group_size": 100}),
        ("folder", {"format": "parquet", "partition_by": ["k"], "overwrite": True}),
    ],
)
def test_a_killed_copy_leaves_the_old_or_the_new(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    generator = random.Random(f"{name} 1")
    target, db, last = tmp_path / name, tsql.connect(), 0
    for round in range(2):
        child = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(target), json.dumps(options), str(last + 1)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        wait = last + generator.randrange(1, 6)
        for line in child.stdout:
            last = int(line)
            if last >= wait:
                break
        time.sleep(generator.random() * 0.02)
        child.kill()
        child.wait()
        last = max([last, *(int(line) for line in child.stdout if line.endswith("\n"))])
        child.stdout.close()
        source = f"read_parquet('{target}/*/*.parquet')" if target.is_dir() else f"'{target}'"
        ((low, high, rows, distinct),) = db.sql(
            f"SELECT min(version), max(version), count(*), count(DISTINCT i) FROM {source}"
        ).fetchall()
        assert low == high and (rows, distinct) == (400, 400), (round, low, high, rows)
        # It may have renamed the file of the next version before it could say so.
        assert low in (last, last + 1), (round, low, last)
    (tmp_path / f".{name}.01234567.partial").touch()
    copy_to(db.sql("SELECT 1 AS k, 2 AS i"), str(target), options)
    assert os.listdir(tmp_path) == [name]


def test_a_copy_that_is_killed_in_the_middle_leaves_one_file_which_goes(tmp_path: Path) -> None:
    """The child writes until it is killed, so that there is a leftover for certain."""
    target = tmp_path / "t.csv"
    target.write_text("old\n")
    script = f"import tsql; tsql.connect().sql(\"COPY (SELECT i FROM range(100000000000) r(i)) TO '{target}'\")"
    child = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + 60
    while not any(entry.stat().st_size for entry in tmp_path.glob(".t.csv.*.partial")):
        assert time.monotonic() < deadline and child.poll() is None
        time.sleep(0.01)
    tsql.connect().sql(f"COPY (SELECT 1 AS i) TO '{tmp_path}/other.csv'")
    db = tsql.connect()
    db.sql(f"COPY (SELECT 1 AS i) TO '{target}'")
    assert len(list(tmp_path.glob(".t.csv.*.partial"))) == 1, "its writer lives"
    child.kill()
    child.wait()
    assert target.read_text() == "i\n1\n" and len(os.listdir(tmp_path)) == 3
    db.sql(f"COPY (SELECT 2 AS i) TO '{target}'")
    assert target.read_text() == "i\n2\n" and sorted(os.listdir(tmp_path)) == ["other.csv", "t.csv"]
