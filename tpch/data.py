"""TPC-H tables as Parquet files, one per table: generated once per scale by `tpchgen-cli` and kept in a cache folder.

Tests, benchmarks and the demo call `tables(scale)`. The folder is `$TSQL_DATA`, or `data` in tsql's part of the user's
cache folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from tsql.kernels.process.private_folder import make_folders

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")


def data_folder() -> Path:
    """The folder of generated data."""
    if folder := os.environ.get("TSQL_DATA"):
        return Path(folder)
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "tsql" / "data"


def tables(scale: float) -> dict[str, Path]:
    """The path of each table's Parquet file at this scale factor. Missing tables are generated."""
    folder = data_folder() / "tpch" / f"sf{scale:g}"
    paths = {table: folder / f"{table}.parquet" for table in TABLES}
    if not all(path.exists() for path in paths.values()):
        _generate(scale, folder)
    return paths


def _generate(scale: float, folder: Path) -> None:
    """Generate all tables in a temporary folder beside `folder`, then rename it, so that nobody sees partial data."""
    if not scale > 0:
        raise ValueError(f"the scale factor is a positive number, not {scale:g}")
    make_folders(folder.parent)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        made = work / "tables"
        command = [_generator(), "parquet", "--scale-factor", f"{scale:g}", "--output-dir", str(made), "--quiet"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        missing = [table for table in TABLES if not (made / f"{table}.parquet").exists()]
        if done.returncode or missing:
            raise RuntimeError(
                f"tpchgen-cli failed at scale {scale:g} (exit code {done.returncode}): "
                f"{done.stderr.strip() or f'no {missing}'}"
            )
        _publish(made, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _publish(made: Path, folder: Path) -> None:
    """Rename `made` to `folder`. If two processes generate the same tables, the first one wins. Unfinished data of an
    older run is replaced."""
    try:
        made.rename(folder)
        return
    except OSError:
        if all((folder / f"{table}.parquet").exists() for table in TABLES):
            return
    folder.rename(made.with_name("damaged"))
    made.rename(folder)


def _generator() -> str:
    """The tpchgen-cli program: from this environment, or else from the PATH."""
    for folder in (Path(sysconfig.get_path("scripts")), Path(sys.executable).parent):
        if (folder / "tpchgen-cli").exists():
            return str(folder / "tpchgen-cli")
    if found := shutil.which("tpchgen-cli"):
        return found
    raise RuntimeError("tpchgen-cli is missing: pip install 'tsql[dev]'")
