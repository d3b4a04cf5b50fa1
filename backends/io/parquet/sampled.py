"""Sources of very many Parquet files: what is known of all of them by the footers of a few, and the parts of files that
tasks read.

`ParquetSource` uses it where tasks of a cluster read the files. A part is a range of a file's bytes, so the sizes of
files are enough to find them: the task that gets a part opens the footer, and reads the row groups whose middle is in
its range. Whatever comes from a sample is an estimate; no kernel relies on it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tsql.backends.io import remote
from tsql.backends.io.parquet.footer import Footer
from tsql.backends.io.prune import Bounds
from tsql.kernels.process.quick_dataclass import dataclass

ALL_FOOTERS = 512
"""Up to so many files, all footers are read: 0.2 s, or as many requests to a store. Their bounds are exact, so kernels
may rely on them."""

SAMPLED_FILES = 100
"""Of more files, so many footers are read."""

PART_BYTES = 128 << 20
"""The stored bytes of a part, as in Spark and Hadoop. Smaller files are one part, and tasks take several."""

REQUESTS = 16
"""Footers elsewhere are asked for by so many threads: the time is spent waiting."""

Opened = TypeVar("Opened")


@dataclass(frozen=True)
class Sample:
    """Some of the files of a source, and the share of all rows that they are expected to hold."""

    paths: tuple[str, ...]
    share: float


@dataclass(frozen=True)
class Told:
    """What the log of a table says of its files, by their paths: the rows, and the bounds of a column. It serves for
    estimates and to leave files out. No kernel relies on it: the log may be of any writer."""

    rows: dict[str, int]
    bounds: Callable[[str], dict[str, Bounds]]


def sample_of(paths: Sequence[str], sizes: dict[str, int]) -> Sample:
    """A sample that is spread over the list, with its first and its last file. It is the same for the same list."""
    count = min(len(paths), SAMPLED_FILES)
    choose = random.Random(len(paths))
    places = {0, len(paths) - 1}
    for number in range(1, count - 1):
        places.add(choose.randrange(number * len(paths) // count, (number + 1) * len(paths) // count))
    chosen = tuple(dict.fromkeys(paths[place] for place in sorted(places)))
    whole = sum(sizes.get(path, 0) for path in paths)
    known = bool(whole) and all(path in sizes for path in paths)
    share = sum(sizes[path] for path in chosen) / whole if known else len(chosen) / len(paths)
    return Sample(chosen, max(share, 1e-12))


def parts_of(size: int | None) -> list[tuple[int, int | None]]:
    """The ranges of bytes that a file of this size is read in. The last one has no end."""
    count = 1 if size is None else max(1, round(size / PART_BYTES))
    starts = [0 if size is None else size * number // count for number in range(count)]
    return list(zip(starts, [*starts[1:], None], strict=True))


def holds(part: Sequence[Any], footer: Footer, group: int) -> bool:
    """Whether a row group is in a part of its file: its middle is in exactly one."""
    start, end, _ = part
    return (not start and end is None) or (
        start <= footer.middles[group] and (end is None or footer.middles[group] < end)
    )


def open_all(paths: Iterable[str], read: Callable[[str], Opened]) -> list[Opened]:
    """What `read` says of each file."""
    listed = list(paths)
    if len(listed) < 2 or not all(map(remote.is_remote, listed)):
        return [read(path) for path in listed]
    with ThreadPoolExecutor(min(REQUESTS, len(listed)), "tsql-footers") as pool:
        return list(pool.map(read, listed))
