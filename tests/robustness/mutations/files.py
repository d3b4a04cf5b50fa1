"""Mutated files of every format: each query over one answers, or fails with an error that names the file."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

from tests.robustness.mutations.edits import mutate_bytes
from tests.robustness.mutations.kind import Finding, expect_project_errors

ROWS = 300
QUERIES = (
    "SELECT count(*) FROM {f}",
    "SELECT * FROM {f}",
    "SELECT s, sum(i), max(t) FROM {f} GROUP BY s",
    "SELECT i, f FROM {f} WHERE i > 150 AND s LIKE 'text%' ORDER BY f DESC LIMIT 5",
    "DESCRIBE SELECT * FROM {f}",
)


class Files:
    """Parquet in several encodings, IPC, CSV and NDJSON, whole in the folder and mutated beside it."""

    name = "files"

    def __init__(self, folder: Path):
        import tsql

        self.folder = folder
        self.db = tsql.connect(memory_limit="1GB")
        self.whole = {path.name: path.read_bytes() for path in _write(folder)}

    def case(self, random: Random) -> tuple[str, bytes, str]:
        name = random.choice(sorted(self.whole))
        return name, mutate_bytes(self.whole[name], random), random.choice(QUERIES)

    def show(self, case: tuple[str, bytes, str]) -> str:
        name, data, sql = case
        kept = self.folder / f"found_{name}"
        kept.write_bytes(data)
        return f"{sql} over {kept}"

    def run(self, case: tuple[str, bytes, str]) -> str:
        from tsql.kernels.expr.errors import TsqlError

        name, data, sql = case
        path = self.folder / f"mutated_{name}"
        path.write_bytes(data)
        try:
            with expect_project_errors():
                _validate(self.db.sql(sql.format(f=f"'{path}'")).arrow())
        except TsqlError as error:
            if path.name not in str(error) and not error.position:
                raise Finding(f"the error names neither the file nor a place in the query: {error}") from error
            return "refused"
        return "rows"

    def close(self) -> None:
        self.db.close()


def _validate(table: pa.Table) -> None:
    """Every value is what Arrow allows. A decimal past its precision may be in a damaged file, and is read as it is
    there."""
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        if "does not fit in precision" not in str(error):
            raise


def _write(folder: Path) -> list[Path]:
    table = pa.table(
        {
            "i": pa.array([None if n % 17 == 0 else n for n in range(ROWS)], pa.int64()),
            "s": [f"text {n % 9}" + "\u00e4" * (n % 5) for n in range(ROWS)],
            "f": [n / 7 for n in range(ROWS)],
            "d": pa.array([Decimal(n).scaleb(-2) for n in range(ROWS)], pa.decimal128(15, 2)),
            "t": pa.array([n * 3_600_000_000 for n in range(ROWS)], pa.timestamp("us")),
            "b": [n % 3 == 0 for n in range(ROWS)],
        }
    )
    paths = []
    for name, options in {
        "plain.parquet": {"compression": "none", "use_dictionary": False},
        "snappy.parquet": {"compression": "snappy", "row_group_size": 100},
        "zstd.parquet": {"compression": "zstd", "data_page_version": "2.0", "write_page_index": True},
        "delta.parquet": {
            "use_dictionary": False,
            "column_encoding": {"i": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY"},
        },
    }.items():
        paths.append(folder / name)
        pq.write_table(table, paths[-1], **options)
    paths.append(folder / "file.arrow")
    feather.write_feather(table, paths[-1], compression="lz4")
    paths.append(folder / "stream.arrows")
    with pa.ipc.new_stream(paths[-1], table.schema) as stream:
        stream.write_table(table, max_chunksize=100)
    rows = table.set_column(3, "d", table["d"].cast(pa.float64())).to_pylist()
    paths.append(folder / "file.csv")
    paths[-1].write_text(
        "i,s,f,d,t,b\n" + "".join(",".join("" if v is None else str(v) for v in row.values()) + "\n" for row in rows),
        encoding="utf-8",
    )
    paths.append(folder / "file.ndjson")
    paths[-1].write_text("".join(json.dumps(row, default=str) + "\n" for row in rows), encoding="utf-8")
    return paths
