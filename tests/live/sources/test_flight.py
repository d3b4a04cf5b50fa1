"""Arrow Flight: what producers put comes, and they are told what is in a checkpoint."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from tests.live.sources.polling import check_close_wakes, poll_until
from tests.patience import PATIENCE_SECONDS, wait_until
from tsql.backends.live.sources.connectors import open_reader
from tsql.backends.live.sources.flight import FlightReader
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT, VARCHAR

SCHEMA = Schema.of(("id", BIGINT), ("name", VARCHAR))
ARROW = SCHEMA.to_arrow()


def opened(**options: Any) -> FlightReader:
    reader = open_reader("flight", {"port": 0, **options}, SCHEMA, "s")
    assert isinstance(reader, FlightReader)
    return reader


@pytest.fixture
def reader() -> Iterator[FlightReader]:
    found = opened()
    found.open({})
    yield found
    found.close()


class Producer:
    """A client that puts batches, and the acknowledgements that it got."""

    def __init__(self, reader: FlightReader, schema: pa.Schema = ARROW, path: str = "s", **options: Any):
        self.client = flight.connect(f"grpc://127.0.0.1:{reader.port}")
        descriptor = flight.FlightDescriptor.for_path(path)
        self.writer, self.metadata = self.client.do_put(descriptor, schema, **options)
        self.acknowledged: list[int] = []
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def put(self, ids: list[int]) -> None:
        self.writer.write_batch(pa.record_batch({"id": ids, "name": [f"n{i}" for i in ids]}))

    def _listen(self) -> None:
        try:
            while (buffer := self.metadata.read()) is not None:
                self.acknowledged.append(json.loads(buffer.to_pybytes())["acknowledged"])
        except pa.ArrowException as error:
            self.error = error

    def ended(self) -> Exception | None:
        """What the call ended with."""
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        try:
            self.writer.close()
        except pa.ArrowException as error:
            self.error = self.error or error
        self.client.close()
        return self.error


def test_rows_come_and_are_acknowledged(reader: FlightReader) -> None:
    one, two = Producer(reader), Producer(reader)
    one.put([1, 2, 3])
    rows, offsets = poll_until(reader, lambda rows: len(rows) >= 3)
    assert rows == [{"id": i, "name": f"n{i}"} for i in (1, 2, 3)]
    two.put([4])
    one.put([5, 6])
    rows, later = poll_until(reader, lambda rows: len(rows) >= 3)
    assert sorted(row["id"] for row in rows) == [4, 5, 6]
    assert (offsets, later) == ({"batches": 1}, {"batches": 3})
    assert one.acknowledged == two.acknowledged == []
    reader.acknowledge(offsets)
    assert wait_until(lambda: one.acknowledged == [1])
    one.writer.done_writing()
    two.writer.done_writing()
    reader.acknowledge(later)
    assert one.ended() is None and two.ended() is None
    assert (one.acknowledged, two.acknowledged) == ([1, 2], [1])


def test_a_batch_is_acknowledged_when_all_of_it_was_given(reader: FlightReader) -> None:
    producer = Producer(reader)
    producer.put(list(range(10)))
    seen: list[Any] = []

    def polled() -> bool:
        for arrival in reader.poll(4, 0.02) or ():
            seen.append((arrival.rows.num_rows, arrival.offset))
        return sum(rows for rows, _ in seen) == 10

    assert wait_until(polled)
    assert [one for one in seen if one[0]] == [(4, 0), (4, 0), (2, 1)]
    reader.acknowledge({"batches": 1})
    producer.writer.done_writing()
    assert producer.ended() is None


def test_producers_wait_for_room() -> None:
    reader = opened(batches=2)
    reader.open({})
    producer = Producer(reader)
    sent: list[int] = []

    def put() -> None:
        for number in range(200):
            producer.writer.write_batch(pa.record_batch({"id": [number] * 50_000, "name": ["x"] * 50_000}))
            sent.append(number)

    putting = threading.Thread(target=put)
    putting.start()
    assert wait_until(lambda: reader.behind() == 100_000)
    assert len(sent) < 200
    rows = 0
    while rows < 200 * 50_000:
        rows += sum(arrival.rows.num_rows for arrival in reader.poll(1 << 20, 0.1) or ())
    putting.join()
    reader.acknowledge({"batches": 200})
    producer.writer.done_writing()
    assert producer.ended() is None and producer.acknowledged == [200]
    reader.close()


def test_restart_counts_on() -> None:
    """A producer whose call ended without an acknowledgement sends its batch again."""
    reader = opened()
    reader.open({})
    producer = Producer(reader)
    producer.put([1])
    poll_until(reader, lambda rows: len(rows) >= 1)
    producer.writer.done_writing()
    reader.close()
    assert "ended before all rows were acknowledged" in str(producer.ended())
    assert producer.acknowledged == []
    again = opened()
    again.open({"batches": 7})
    producer = Producer(again)
    producer.put([1])
    _, offsets = poll_until(again, lambda rows: len(rows) >= 1)
    assert offsets == {"batches": 8}
    again.acknowledge(offsets)
    producer.writer.done_writing()
    assert producer.ended() is None
    again.close()


def test_columns_are_conformed_and_checked(reader: FlightReader) -> None:
    producer = Producer(reader, pa.schema({"name": pa.large_string(), "x": pa.int8(), "ID": pa.int32()}))
    producer.writer.write_batch(
        pa.record_batch([pa.array(["a"], pa.large_string()), pa.array([1], pa.int8()), pa.array([2], pa.int32())],
                        names=["name", "x", "ID"])
    )  # fmt: skip
    assert poll_until(reader, lambda rows: len(rows) >= 1)[0] == [{"id": 2, "name": "a"}]
    for schema, message in (
        (pa.schema({"id": pa.int64()}), "there is no column name"),
        (pa.schema({"id": pa.date32(), "name": pa.string()}), "column id is DATE here, which cannot be read as BIGINT"),
    ):
        assert message in str(Producer(reader, schema).ended())
    bad = Producer(reader)
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff"))
    bad.writer.write_batch(pa.record_batch([pa.array([1]), broken], names=["id", "name"]))
    assert "column name cannot be read as VARCHAR" in str(bad.ended())
    assert "there is no stream other" in str(Producer(reader, path="other").ended())
    reader.acknowledge({"batches": 1})
    producer.writer.done_writing()
    assert producer.ended() is None


def test_token() -> None:
    reader = opened(token="secret")
    reader.open({})
    for headers in ([], [(b"authorization", b"Bearer wrong")]):
        with pytest.raises((flight.FlightUnauthenticatedError, pa.ArrowException), match="token is missing or wrong"):
            error = Producer(reader, options=flight.FlightCallOptions(headers=headers)).ended()
            raise error or AssertionError("it was let in")
    right = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer secret")])
    producer = Producer(reader, options=right)
    producer.put([1])
    _, offsets = poll_until(reader, lambda rows: len(rows) >= 1)
    reader.acknowledge(offsets)
    producer.writer.done_writing()
    assert producer.ended() is None
    reader.close()


def test_close_wakes() -> None:
    check_close_wakes(opened())


def test_errors(reader: FlightReader) -> None:
    with pytest.raises(SourceError, match="s cannot listen on 127.0.0.1:"):
        opened(port=reader.port).open({})
    with pytest.raises(SourceError, match="the offset of s in the checkpoint is damaged"):
        opened().open({"batches": "x"})
