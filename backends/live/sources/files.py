"""A growing folder, or a pattern, of Parquet, CSV, JSON or Arrow files → the rows of a stream. Connectors `parquet`,
`csv`, `json`, `arrow`, of which CREATE STREAM .. WITH (follow = true) makes this reader.

Files are read by the sources of `backends.io`, one after another. Those that one look at the folder finds are read in
the order of (time of modification, path). Without `follow` the stream ends after the files of the first look.

The offset of the one partition has the files that were read (`DoneFiles`) and the place in the file that is being read:
its split (a row group, a record batch; a text file is one split) and the rows of it that were given. A reader that
begins there gives the rest of that file, then files that are not among those. Rows of one file always come in the same
order. Files that were found by different looks before may be found by one look after a restart, and then come in the
order of their times.

What can happen to a file:

- It is being written: names that say so are left out (`found_files`), and with `follow` a Parquet or Arrow file
  without its end is tried again at the next look, a text file is left alone until it has not changed for `settle`.
  Write under a name that ends in `.tmp` and rename it: that is safe for every kind.
- It changes, or was changed since the checkpoint: an error. It disappears before it is read: a notice. It disappears
  when a part of it was read: an error if that keeps the rest from being read."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tsql.backends.io import Source, Split, remote
from tsql.backends.io.open import open_source
from tsql.backends.live.sources.columns import joined, plain_batch
from tsql.backends.live.sources.done_files import DoneFiles, name_of, state_of
from tsql.backends.live.sources.found_files import FoundFile, file_at, found_files, is_whole
from tsql.backends.live.sources.notices import Notices
from tsql.backends.live.sources.reader import Arrival, Offset
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.process import forks

PARTITION = "files"
SOON_SECONDS = 0.05
"""Small files are gathered into one batch for so long."""
SAMPLE_ROWS = {"csv": 1000, "json": 100}
"""Rows of a text file by which its form is detected, unless `sample_size` says another number. Types are declared, so
few will do; looking at 20,000 rows took longer than reading a small file."""
LOOK_SHARE = 10
"""Looking at a large folder takes at most one part in this many of the time."""


class FilesReader:
    """Reads files that are there and, with `follow`, those that come."""

    replays = True

    def __init__(self, kind: str, options: Mapping[str, Any], schema: Schema | None, name: str) -> None:
        """`options` are those of the connector, and any of the kind of files."""
        rest = dict(options)
        self.kind, self.name, self.notices = kind, name, Notices()
        self.patterns: tuple[str, ...] = rest.pop("path")
        self.follow: bool = rest.pop("follow")
        self._interval: float = rest.pop("poll_interval")
        self._settle: float = rest.pop("settle", 0.0)
        self._options = rest
        self.schema = self._read_schema() if schema is None else schema
        sample = {"sample_size": SAMPLE_ROWS[kind]} if kind in SAMPLE_ROWS else {}
        self._declared = {**sample, **rest, "schema": {field.name: field.type for field in self.schema}}
        self._closing = threading.Event()
        self._busy = forks.lock()
        self._begin(DoneFiles())

    def _begin(self, done: DoneFiles) -> None:
        self._done = done
        self._queue: deque[FoundFile] = deque()
        self._waiting: dict[str, tuple[FoundFile, float]] = {}
        self._current: _OpenFile | None = None
        self._next_look = 0.0
        self._looked = self._told = False

    def open(self, offsets: Mapping[str, Offset]) -> None:
        offset = offsets.get(PARTITION)
        if offset is None:
            self._begin(DoneFiles())
            return
        self._begin(DoneFiles.from_json(offset.get("done") if isinstance(offset, dict) else None))
        place = offset.get("file")
        if place is None:
            return
        try:
            file = FoundFile(str(place["path"]), int(place["changed_ns"]), int(place["bytes"]))
            split, rows = int(place["split"]), int(place["rows"])
        except (KeyError, TypeError, ValueError):
            raise SourceError(f"the offset of {self.name} in the checkpoint is damaged") from None
        now = file_at(file.path)
        if now is None:
            raise SourceError(f"{file.path}: the file has disappeared after a part of it was read")
        if now != file:
            raise self._changed(file.path)
        self._current = self._opened(file)
        self._current.move_to(split, rows)

    def poll(self, rows: int, seconds: float) -> Sequence[Arrival] | None:
        deadline = time.monotonic() + seconds
        with self._busy:
            while not self._closing.is_set():
                batches, moved = self._gathered(rows)
                if batches or moved or not self._told:
                    self._told = True
                    return [Arrival(PARTITION, joined(batches, self.schema), self._offset())]
                now = time.monotonic()
                if self._looked and not self.follow:
                    return None
                if now >= self._next_look:
                    self._look()
                elif now < deadline:
                    self._closing.wait(min(deadline, self._next_look) - now)
                else:
                    return []
        return []

    def behind(self) -> int | None:
        """Bytes of the files that the last look found, and of the one that is being read."""
        current = self._current
        return sum(file.bytes for file in list(self._queue)) + (0 if current is None else current.file.bytes)

    def acknowledge(self, offsets: Mapping[str, Offset]) -> None:
        """Files stay where they are: nothing to do."""

    def close(self) -> None:
        self._closing.set()
        with self._busy:
            self._current = None
            self._queue.clear()

    def _gathered(self, rows: int) -> tuple[list[pa.RecordBatch], bool]:
        """Rows at hand, at most `rows`, and whether the reader moved on over a file without rows."""
        batches: list[pa.RecordBatch] = []
        left, moved = rows, False
        until = time.monotonic() + SOON_SECONDS
        while left > 0 and (not batches or time.monotonic() < until) and not self._closing.is_set():
            if self._current is None:
                self._current = self._next_file()
                if self._current is None:
                    break
            batch = self._next_batch(self._current, left)
            if batch is None:
                self._finish(self._current)
                moved = True
            else:
                batches.append(batch)
                left -= batch.num_rows
        return batches, moved

    def _next_batch(self, current: _OpenFile, most: int) -> pa.RecordBatch | None:
        try:
            return current.next_batch(most)
        except SourceError as error:
            now = file_at(current.file.path)
            if now is None:
                raise SourceError(
                    f"{current.file.path}: the file has disappeared after a part of it was read"
                ) from error
            if now != current.file:
                raise self._changed(current.file.path) from error
            raise

    def _finish(self, current: _OpenFile) -> None:
        file = current.file
        now = file_at(file.path)
        if now is not None and now != file:
            raise self._changed(file.path)
        for column in sorted(getattr(current.source, "lost", ())):
            self.notices.tell(f"digits below microseconds of column {column} were dropped")
        self._done.add(file.path, state_of(file.changed_ns, file.bytes))
        self._current = None

    def _next_file(self) -> _OpenFile | None:
        while self._queue:
            file = self._queue.popleft()
            now = file_at(file.path)
            if now is None:
                self.notices.tell(f"{file.path}: the file disappeared before it was read")
            elif now.bytes == 0 and self.kind in ("csv", "json"):
                self._done.add(now.path, state_of(now.changed_ns, now.bytes))
            elif now == file or not self.follow:
                try:
                    return self._opened(now)
                except SourceError:
                    if file_at(file.path) is not None:
                        raise
                    self.notices.tell(f"{file.path}: the file disappeared before it was read")
            # Otherwise it is still being written: the next look finds it again.
        return None

    def _opened(self, file: FoundFile) -> _OpenFile:
        return _OpenFile(file, open_source(file.path, self.kind, self._declared), self.schema)

    def _look(self) -> None:
        """Find new files, in the order in which they will be read."""
        began = time.monotonic()
        reading = None if self._current is None else self._current.file.path
        names: set[int] = set()
        fresh: list[FoundFile] = []
        for file in found_files(self.patterns, self.kind):
            if file.path == reading:
                continue
            name = name_of(file.path)
            names.add(name)
            state = self._done.state(name)
            if state is None:
                fresh.append(file)
            elif state != state_of(file.changed_ns, file.bytes):
                raise self._changed(file.path)
        self._done.keep(names)
        if not self.follow and not fresh and not self._done:
            raise SourceError(f"{', '.join(self.patterns)}: no file matches", hint="follow = true waits for files")
        if self.follow:
            seen, self._waiting = self._waiting, {}
            fresh = [file for file in fresh if self._is_ready(file, seen)]
        self._queue.extend(sorted(fresh, key=lambda file: (_changed_ns(file), file.path)))
        self._looked = True
        took = time.monotonic() - began
        self._next_look = time.monotonic() + max(self._interval, LOOK_SHARE * took)

    def _is_ready(self, file: FoundFile, seen: Mapping[str, tuple[FoundFile, float]]) -> bool:
        """Whether nobody writes the file any more, as far as one can tell. `seen` has the files that were not ready at
        the last look, each with the moment since which it has not changed."""
        try:
            whole = is_whole(file.path, self.kind, file.bytes)
        except FileNotFoundError:
            return False
        before, since = seen.get(file.path, (None, 0.0))
        if before != file:
            since = time.monotonic()
        self._waiting[file.path] = (file, since)
        if not whole:
            if before is None:
                self.notices.tell(f"{file.path}: is not whole yet, and is read when it is")
            return False
        if self._settle == 0 or remote.is_remote(file.path):
            return True
        # A clock may go wrong, so what was seen counts as well as the time that the file has.
        age = time.time() - file.changed_ns / 1e9
        return age >= self._settle or time.monotonic() - since >= self._settle

    def _offset(self) -> Offset:
        current = self._current
        place = None
        if current is not None:
            place = {
                "path": current.file.path,
                "changed_ns": current.file.changed_ns,
                "bytes": current.file.bytes,
                "split": current.split,
                "rows": current.rows,
            }
        return {"done": self._done.to_json(), "file": place}

    def _read_schema(self) -> Schema:
        """The columns of the files that are there."""
        whole = [
            file.path
            for file in sorted(found_files(self.patterns, self.kind), key=lambda file: (file.changed_ns, file.path))
            if not self.follow or is_whole(file.path, self.kind, file.bytes)
        ]
        if not whole:
            raise SourceError(
                f"{', '.join(self.patterns)}: there is no file yet, so the columns of {self.name} are not known",
                hint=f"CREATE STREAM {self.name} (column TYPE, ..) declares them",
            )
        found = open_source(whole, self.kind, self._options).schema
        return Schema(tuple(field for field in found if field.type.is_readable))

    @staticmethod
    def _changed(path: str) -> SourceError:
        return SourceError(
            f"{path}: the file has changed after it was read, or while it was",
            hint="write files under a name that ends in .tmp, and rename them when they are whole",
        )


def _changed_ns(file: FoundFile) -> int:
    return int(remote.changed_at(file.path) * 1e9) if remote.is_remote(file.path) else file.changed_ns


class _OpenFile:
    """A file that is being read: `rows` rows of its split number `split` were given."""

    def __init__(self, file: FoundFile, source: Source, schema: Schema) -> None:
        self.file, self.source, self._schema = file, source, schema
        self.split, self.rows = 0, 0
        self._splits: list[Split] = source.splits(schema.names, None)
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._rest: pa.RecordBatch | None = None
        self._skip = 0

    def move_to(self, split: int, rows: int) -> None:
        """Go on behind these rows."""
        self.split, self.rows, self._skip = split, rows, rows

    def next_batch(self, most: int) -> pa.RecordBatch | None:
        """Up to `most` rows; None at the end of the file."""
        while self._rest is None:
            if self._batches is None:
                if self.split >= len(self._splits):
                    return None
                self._batches = self.source.read(self._splits[self.split], self._schema.names)
            batch = next(self._batches, None)
            if batch is None:
                self.split, self.rows, self._skip, self._batches = self.split + 1, 0, 0, None
            elif batch.num_rows > self._skip:
                self._rest, self._skip = plain_batch(batch.slice(self._skip), self._schema), 0
            else:
                self._skip -= batch.num_rows
        taken, rest = self._rest.slice(0, most), self._rest.slice(most)
        self._rest = rest if rest.num_rows else None
        self.rows += taken.num_rows
        return taken
