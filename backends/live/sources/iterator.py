"""A Python iterable of tables → the rows of a stream. Connector `python`, which Python code uses with data of its own.

What it gives may be whatever a session can register: Arrow tables and batches, data frames, dicts of columns, lists of
dicts. Three kinds of data are told apart:

- A function is called with an offset and returns an iterable of what comes behind it. The first offset is 0. An item
  may be a pair (table, offset), and then this is the offset behind it; otherwise it is the number of items. The stream
  replays.
- A list or tuple is read from its beginning. It replays, too.
- Any other iterable can be read once. It does not replay: whatever it gives is new.

The offset is [the place behind the last whole item, rows given of the next one]. The iterable runs in a thread of its
own, so that `poll` returns in time however long it takes; it is at most two items ahead."""

from __future__ import annotations

import itertools
import json
import queue
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tsql.backends.io.arrow import ArrowSource
from tsql.backends.io.frames import table_of_columns, table_of_rows
from tsql.backends.live.sources.columns import columns_of_table, conformed_batches, empty_batch
from tsql.backends.live.sources.notices import Notices
from tsql.backends.live.sources.reader import Arrival, Offset
from tsql.kernels.expr.errors import SourceError, TsqlError
from tsql.kernels.expr.schema import Schema

PARTITION = "items"
ITEMS_AHEAD = 2
WAKE_SECONDS = 0.1


class IteratorReader:
    """Reads an iterable, or what a function of an offset returns."""

    def __init__(self, options: Mapping[str, Any], schema: Schema | None, name: str) -> None:
        self.name, self.notices = name, Notices()
        self._data = options["data"]
        if not callable(self._data) and (isinstance(self._data, Mapping) or not isinstance(self._data, Iterable)):
            raise SourceError(
                f"the data of {name} is a {type(self._data).__name__}: it must be an iterable of tables, or a function "
                "from an offset to one"
            )
        self.replays = callable(self._data) or isinstance(self._data, list | tuple)
        self._once = None if self.replays else iter(self._data)
        self.schema = self._read_schema() if schema is None else schema
        self._closing = threading.Event()
        self._ahead: queue.Queue[_Item] = queue.Queue(ITEMS_AHEAD)
        self._thread: threading.Thread | None = None
        self._parts: deque[pa.RecordBatch] = deque()
        self._place: Any = 0
        self._given = self._skip = 0
        self._next: Any = 0
        self._ended = self._told = False

    def open(self, offsets: Mapping[str, Offset]) -> None:
        offset = offsets.get(PARTITION)
        if offset is not None:
            if not isinstance(offset, list) or len(offset) != 2 or not isinstance(offset[1], int):
                raise SourceError(f"the offset of {self.name} in the checkpoint is damaged")
            self._place, self._skip = offset if self.replays else (offset[0], 0)
        self._given = self._skip
        self._thread = threading.Thread(
            target=self._run, args=(self._place,), name=f"tsql stream {self.name}", daemon=True
        )
        self._thread.start()

    def poll(self, rows: int, seconds: float) -> Sequence[Arrival] | None:
        if not self._told:
            self._told = True
            return [Arrival(PARTITION, empty_batch(self.schema), [self._place, self._given])]
        deadline = time.monotonic() + seconds
        while not self._parts:
            if self._closing.is_set():
                return []
            if self._ended:
                return None
            try:
                item = self._ahead.get(timeout=max(0.0, min(WAKE_SECONDS, deadline - time.monotonic())))
            except queue.Empty:
                if time.monotonic() >= deadline:
                    return []
                continue
            if self._take(item):
                return [Arrival(PARTITION, empty_batch(self.schema), [self._place, 0])]
        first = self._parts.popleft()
        taken, rest = first.slice(0, rows), first.slice(rows)
        if rest.num_rows:
            self._parts.appendleft(rest)
        self._given += taken.num_rows
        if not self._parts:
            self._place, self._given = self._next, 0
        return [Arrival(PARTITION, taken, [self._place, self._given])]

    def _take(self, item: _Item) -> bool:
        """Take an item; whether the stream moved on over one without rows."""
        if item.error is not None:
            raise item.error
        if item.batches is None:
            self._ended = True
            return False
        self._next = item.offset
        left = self._skip
        for batch in item.batches:
            if batch.num_rows > left:
                self._parts.append(batch.slice(left))
            left = max(0, left - batch.num_rows)
        if left:
            raise SourceError(
                f"{self.name}: the item behind {self._place!r} had more rows when the checkpoint was made"
            )
        self._skip = 0
        if self._parts:
            return False
        self._place, self._given = self._next, 0
        return True

    def behind(self) -> int | None:
        return None

    def acknowledge(self, offsets: Mapping[str, Offset]) -> None:
        """Nobody waits for it."""

    def close(self) -> None:
        """The thread ends when the iterable gives its next item: nobody can wake it before."""
        self._closing.set()

    def _run(self, begin: Any) -> None:
        """Fill the queue with what comes behind a place, in a thread."""
        items: Iterator[Any] = iter(())
        try:
            items = self._items(begin)
            for number, item in enumerate(items, 1):
                data, offset = item if _is_pair(item) else (item, None)
                if offset is None:
                    if not isinstance(begin, int):
                        raise SourceError(f"item {number} of {self.name} carries no offset, and those before it did")
                    offset = begin + number
                if not self._put(_Item(self._batches(data, f"item {number} of {self.name}"), _json(offset, self.name))):
                    return
            self._put(_Item(None))
        except TsqlError as error:
            self._put(_Item(None, error=error))
        except Exception as error:  # the user's own code may raise anything
            failed = self._failed(error)
            failed.__cause__ = error
            self._put(_Item(None, error=failed))
        finally:
            end = getattr(items, "close", None)
            if self._closing.is_set() and end is not None:
                end()

    def _failed(self, error: Exception) -> SourceError:
        return SourceError(f"the iterable of {self.name} failed: {type(error).__name__}: {error}")

    def _items(self, begin: Any) -> Iterator[Any]:
        if callable(self._data):
            return iter(self._data(begin))
        if self._once is not None:
            return self._once
        return itertools.islice(self._data, begin, None)

    def _batches(self, data: Any, origin: str) -> list[pa.RecordBatch]:
        return conformed_batches(_table(data, origin), self.schema, origin, self.notices)

    def _put(self, item: _Item) -> bool:
        """Whether there is still somebody who wants it."""
        while not self._closing.is_set():
            try:
                self._ahead.put(item, timeout=WAKE_SECONDS)
                return True
            except queue.Full:
                continue
        return False

    def _read_schema(self) -> Schema:
        """The columns of the first item. A function is called once more for it."""
        try:
            first = next(self._once if self._once is not None else self._items(0), None)
        except TsqlError:
            raise
        except Exception as error:  # the user's own code may raise anything
            raise self._failed(error) from error
        if self._once is not None:
            self._once = itertools.chain(() if first is None else (first,), self._once)
        if first is None:
            raise SourceError(f"{self.name} has no items, so its columns are not known", hint="declare its columns")
        return columns_of_table(_table(first[0] if _is_pair(first) else first, self.name), self.name)


class _Item:
    """What the thread hands over: the batches of an item and the offset behind it, the end (None), or an error."""

    def __init__(
        self, batches: list[pa.RecordBatch] | None, offset: Offset = None, error: TsqlError | None = None
    ) -> None:
        self.batches, self.offset, self.error = batches, offset, error


def _is_pair(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2


def _json(offset: Any, name: str) -> Any:
    try:
        json.dumps(offset, allow_nan=False)
    except (TypeError, ValueError):
        raise SourceError(f"{name}: an offset must be a JSON value, not {offset!r}") from None
    return offset


def _table(data: Any, origin: str) -> pa.Table:
    """An item as a table."""
    try:
        if isinstance(data, Mapping):
            return table_of_columns(data)
        if isinstance(data, list):
            return table_of_rows(data)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise SourceError(f"{origin} does not make a table: {error}") from error
    return ArrowSource(data, origin).table()
