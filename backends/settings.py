"""`Settings`: how the queries of a session are planned and run. `SET name = value` changes them."""

from __future__ import annotations

from tsql.kernels.process.quick_dataclass import dataclass


@dataclass
class Settings:
    """What a user may set for a session or one query; the names are those of `SET name = value`.

    threads: 0 means all cores. memory_limit: bytes, or None. batch_rows: the largest morsel, 0 for the natural one.
    shards: of plans, 0 for as many as threads. small_rows: kernels for at most so many rows are compiled quickly rather
    than well. temp_directory: where rows go that do not fit memory_limit; the system's folder for such files if empty.
    python_scan: whether FROM finds Python variables of the caller.
    optimizer, equal_hashes and spill_after (operators that hold more than so many bytes spill; 0: never) are for tests.
    """

    threads: int = 0
    memory_limit: int | None = None
    batch_rows: int = 0
    shards: int = 0
    optimizer: bool = True
    equal_hashes: bool = False
    small_rows: int = 50_000
    temp_directory: str = ""
    spill_after: int = 0
    python_scan: bool = True
