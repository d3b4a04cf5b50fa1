"""How the time of a join grows with its rows: 1, 2, 4 and 8 times as many, on every engine. Called by `bench`.

Each row of the probe side matches one row of the build side, which has a quarter as many rows. Dense keys are the
numbers 0, 1, 2 .. in random order, like primary keys. Sparse keys are spread over 62 bits, so only hashing finds
them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tsql.tpch.answers import same
from tsql.tpch.engines import Engine
from tsql.tpch.measure import interleaved, short
from tsql.tpch.peers import open_engines, reason
from tsql.tpch.report import Row, Section

FACTORS = (1, 2, 4, 8)
KINDS = ("dense", "sparse")
LIMIT = 1.15
"""The allowed growth of the time per row, until the build side no longer fits in the processor's caches."""
OURS = "tsql"
Tell = Callable[[str], None]


def growth(names: list[str], rows: int, threads: int, runs: int, tell: Tell) -> list[Section]:
    """A table per kind of key: nanoseconds per probe row at each size, and how they grow for this project."""
    engines, _ = open_engines(names, threads)
    sections = []
    try:
        for kind in KINDS:
            section = Section(
                f"Joins of more rows, {kind} keys, in memory",
                [f"{name}, ns per row" for name in engines],
                "tsql, against the first line",
            )
            for factor in FACTORS:
                row = _measure(engines, kind, factor * rows, runs)
                if OURS in row.runs_ms:
                    first = (section.rows or [row])[0].runs_ms.get(OURS, row.runs_ms[OURS])
                    row.value = (np.median(row.runs_ms[OURS]) / (factor * rows)) / (np.median(first) / rows)
                    row.aim, row.met = f"<= {LIMIT:g}", bool(row.value <= LIMIT)
                tell(f"{row.case}, {kind}: {row.measured}")
                section.rows.append(row)
            sections.append(section)
    finally:
        for engine in engines.values():
            engine.close()
    return sections


def _measure(engines: dict[str, Engine], kind: str, rows: int, runs: int) -> Row:
    """One size on every engine; the answers are compared with NumPy's."""
    probe, build, total = sides(kind, rows)
    names = {"probe": f"probe_{kind}_{rows}", "build": f"build_{kind}_{rows}"}
    sql = f"SELECT count(*) AS n, sum(p.v + b.w) AS total FROM {names['probe']} p JOIN {names['build']} b ON p.k = b.k"
    row = Row(f"{rows:,} rows with {build.num_rows:,} ({build.nbytes / 2**20:.1f} MiB)")
    work: dict[str, Callable[[], object]] = {}
    with tempfile.TemporaryDirectory(prefix="tsql-joins-") as folder:
        for side, table in (("probe", probe), ("build", build)):
            pq.write_table(table, Path(folder) / f"{side}.parquet")
        for name, engine in engines.items():
            try:
                for side, table_name in names.items():
                    engine.load(table_name, Path(folder) / f"{side}.parquet")
                found = [column[0].as_py() for column in engine.run(sql).columns]
            except Exception as error:
                row.measured[f"{name}, ns per row"] = f"not run: {reason(error)}"
                continue
            if all(same(a, b) for a, b in zip((rows, total), found)):
                work[name] = partial(engine.run, sql)
            else:
                row.measured[f"{name}, ns per row"] = f"wrong answer: {found}, expected {[rows, total]}"
    for name, times in interleaved(work, runs, least_ms=100).items():
        row.measured[f"{name}, ns per row"] = short(times.median * 1e6 / rows)
        row.runs_ms[name] = times.runs_ms
    return row


def sides(kind: str, rows: int) -> tuple[pa.Table, pa.Table, int]:
    """Probe side, build side, and the sum of `v + w` over their join."""
    random = np.random.default_rng(7)
    count = max(rows // 4, 1)
    numbers = np.arange(count) if kind == "dense" else np.unique(random.integers(0, 2**62, 2 * count))[:count]
    keys = random.permutation(numbers)
    places = random.integers(0, count, rows)
    v, w = random.integers(0, 1000, rows), random.integers(0, 1000, count)
    return pa.table({"k": keys[places], "v": v}), pa.table({"k": keys, "w": w}), int(v.sum() + w[places].sum())
