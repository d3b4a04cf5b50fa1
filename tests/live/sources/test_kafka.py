"""Kafka over librdkafka's mock cluster: partitions, offsets, formats, errors. (Transactions are not in the mock.)"""

from __future__ import annotations

import io
import json
import random
import threading
from collections.abc import Iterator
from typing import Any

import confluent_kafka as ck
import pyarrow as pa
import pytest

from tests.live.sources.polling import check_close_wakes, poll_until, steps
from tests.patience import PATIENCE_SECONDS, wait_until
from tsql.backends.live.formats.format import BAD
from tsql.backends.live.sources.connectors import check_options, open_reader
from tsql.backends.live.sources.kafka import TOMBSTONES, KafkaReader
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.expr.types import BIGINT, VARCHAR

SCHEMA = Schema.of(("id", BIGINT), ("name", VARCHAR))
PARTITIONS = 4
"""The mock cluster makes topics with so many."""


class Cluster:
    """A mock cluster, which lives inside of a producer."""

    def __init__(self) -> None:
        self.producer = ck.Producer({"test.mock.num.brokers": 1, "log_level": 0})
        brokers = self.producer.list_topics(timeout=PATIENCE_SECONDS).brokers.values()
        self.brokers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        self._topics = 0

    def topic(self) -> str:
        """A new topic. The first message in each partition makes it; readers skip it as a tombstone."""
        self._topics += 1
        name = f"topic{self._topics}"
        self.send(name, [(partition, None) for partition in range(PARTITIONS)])
        return name

    def send(self, topic: str, messages: list[tuple[int, bytes | None]]) -> None:
        for partition, value in messages:
            self.producer.produce(topic, value, b"key", partition)
        assert self.producer.flush(PATIENCE_SECONDS) == 0

    def opened(self, topic: str, **options: Any) -> KafkaReader:
        given = {"brokers": self.brokers, "topic": topic, **options}
        reader = open_reader("kafka", given, SCHEMA, "s")
        assert isinstance(reader, KafkaReader)
        return reader


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield Cluster()


def message(number: int) -> bytes:
    return json.dumps({"id": number, "name": f"n{number}"}).encode()


def by_partition(found: list[Any]) -> dict[str, list[int]]:
    """The ids that came, by the partition whose offset moved."""
    ids: dict[str, list[int]] = {}
    before: dict[str, Any] = {}
    for rows, offsets in found:
        moved = [partition for partition in offsets if offsets[partition] != before.get(partition)]
        for partition in moved:
            ids.setdefault(partition, []).extend(row["id"] for row in rows)
        before = offsets
    return ids


def test_any_offset(cluster: Cluster) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)
    topic = cluster.topic()
    expected: dict[str, list[int]] = {str(partition): [] for partition in range(PARTITIONS)}
    messages: list[tuple[int, bytes | None]] = []
    for number in range(400):
        partition = rng.randrange(PARTITIONS)
        messages.append((partition, None if number % 50 == 7 else message(number)))
        if number % 50 != 7:
            expected[str(partition)].append(number)
    cluster.send(topic, messages)

    reader = cluster.opened(topic, follow=False)
    found = steps(reader, lambda: rng.randint(1, 40))
    assert by_partition(found) == expected
    assert reader.notices.left_out[TOMBSTONES] == PARTITIONS + 8
    assert reader.behind() == 0
    reader.close()
    for number in rng.sample(range(len(found)), 4):
        offsets = found[number][1]
        again = cluster.opened(topic, follow=False)
        rest = by_partition([({}, offsets), *steps(again, lambda: 1000, offsets)])
        done = by_partition(found[: number + 1])
        assert {p: done.get(p, []) + rest.get(p, []) for p in expected} == expected
        again.close()


def test_growing_topic(cluster: Cluster) -> None:
    topic = cluster.topic()
    reader = cluster.opened(topic)
    reader.open({})

    def produce() -> None:
        for number in range(0, 300, 10):
            cluster.send(topic, [(number // 10 % PARTITIONS, message(number + i)) for i in range(10)])

    producer = threading.Thread(target=produce)
    producer.start()
    rows, offsets = poll_until(reader, lambda rows: len(rows) >= 300)
    producer.join()
    assert sorted(row["id"] for row in rows) == list(range(300))
    assert offsets == {"0": 81, "1": 81, "2": 71, "3": 71}
    reader.close()


def test_start_at_the_end(cluster: Cluster) -> None:
    """`latest` is where the job began, also if it is restarted before anything came."""
    topic = cluster.topic()
    cluster.send(topic, [(0, message(1))])
    reader = cluster.opened(topic, start="latest")
    reader.open({})
    offsets = {arrival.partition: arrival.offset for arrival in reader.poll(10, 0.0) or ()}
    assert offsets == {"0": 2, "1": 1, "2": 1, "3": 1}
    reader.close()
    cluster.send(topic, [(0, message(2)), (3, message(3))])
    again = cluster.opened(topic, start="latest")
    again.open(offsets)
    assert sorted(row["id"] for row in poll_until(again, lambda rows: len(rows) >= 2)[0]) == [2, 3]
    again.close()


def test_new_partitions_are_read_from_their_beginning(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = cluster.topic()
    cluster.send(topic, [(partition, message(partition)) for partition in range(PARTITIONS)])
    there = {0, 1}
    monkeypatch.setattr(KafkaReader, "_partitions", lambda self, consumer: set(there))
    reader = cluster.opened(topic, start="latest", discover_interval="10 milliseconds")
    reader.open({})
    assert [arrival.offset for arrival in reader.poll(10, 0.0) or ()] == [2, 2]
    assert reader.poll(10, 0.1) == []
    there.add(3)
    rows, offsets = poll_until(reader, lambda rows: len(rows) >= 1)
    assert ([row["id"] for row in rows], offsets) == ([3], {"3": 2})
    reader.close()


def test_offsets_are_committed_to_a_group(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.send(topic, [(0, message(1))])
    reader = cluster.opened(topic, group="lag")
    reader.open({})
    _, offsets = poll_until(reader, lambda rows: len(rows) >= 1)
    reader.acknowledge(offsets)
    observer = ck.Consumer({"bootstrap.servers": cluster.brokers, "group.id": "lag"})

    def committed() -> bool:
        reader.poll(10, 0.01)
        (place,) = observer.committed([ck.TopicPartition(topic, 0)], timeout=PATIENCE_SECONDS)
        return place.offset == 2

    assert wait_until(committed)
    observer.close()
    reader.close()


def test_formats(cluster: Cluster) -> None:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema({"id": pa.int64(), "name": pa.string()})) as writer:
        writer.write_table(pa.table({"id": [1, 2], "name": ["a", "b"]}))
    for format, value in (("csv", b"1,a"), ("arrow", sink.getvalue())):
        topic = cluster.topic()
        cluster.send(topic, [(0, value)])
        reader = cluster.opened(topic, format=format)
        reader.open({})
        assert poll_until(reader, lambda rows: len(rows) >= 1)[0][0] == {"id": 1, "name": "a"}
        reader.close()


def test_bad_messages(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.send(topic, [(2, message(1)), (2, b"no json"), (2, message(3))])
    reader = cluster.opened(topic)
    with pytest.raises(SourceError, match=f"{topic}, partition 2, offset 2: malformed JSON"):
        steps(reader, lambda: 100, most=2)
    reader.close()
    reader = cluster.opened(topic, ignore_errors=True)
    reader.open({})
    assert [row["id"] for row in poll_until(reader, lambda rows: len(rows) >= 2)[0]] == [1, 3]
    assert reader.notices.left_out[BAD] == 1
    reader.close()


def test_close_wakes(cluster: Cluster) -> None:
    check_close_wakes(cluster.opened(cluster.topic()))


def test_offsets_that_are_gone(cluster: Cluster) -> None:
    topic = cluster.topic()
    reader = cluster.opened(topic)
    reader.open({"0": 1000})
    with pytest.raises(SourceError, match=f"{topic}: partition 0 has no message with offset 1000"):
        assert wait_until(lambda: reader.poll(10, 0.05) is None)
    reader.close()
    for offsets, error in (
        ({"0": "x"}, "is damaged"),
        ({"a": 1}, "is damaged"),
        ({"9": 1}, "partition 9, which is in"),
    ):
        reader = cluster.opened(topic)
        with pytest.raises(SourceError, match=error):
            reader.open(offsets)
        reader.close()


def test_what_is_missing(cluster: Cluster) -> None:
    with pytest.raises(SourceError, match="^nothere: .*[Uu]nknown topic"):
        cluster.opened("nothere").open({})
    with pytest.raises(SourceError, match="Kafka at 127.0.0.1:1 does not answer"):
        cluster.opened("t", brokers="127.0.0.1:1", timeout="200 milliseconds").open({})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.sasl.kerberos.kinit.cmd": "x"}, "option kafka.sasl.kerberos.kinit.cmd cannot be set"),
        ({"kafka.plugin.library.paths": "x"}, "option kafka.plugin.library.paths cannot be set"),
        ({"kafka.enable.auto.commit": True}, "option kafka.enable.auto.commit cannot be set"),
        ({"kafka.security.protocol": print}, "option kafka.security.protocol is a text"),
        ({"format": "avro"}, "option format is one of json, csv, binary, arrow"),
        ({"start": 5}, "option start is one of earliest, latest"),
        ({"topics": "x"}, "unknown option topics for connector kafka\nhint: did you mean topic"),
    ],
)
def test_options(cluster: Cluster, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError) as raised:
        cluster.opened("t", **options)
    assert message in str(raised.value)


def test_options_that_librdkafka_refuses(cluster: Cluster) -> None:
    check_options("kafka", {"brokers": "b:1", "topic": "t", "kafka.security.protocol": "plaintext"})
    with pytest.raises(SourceError, match="s: Kafka refuses an option: .*nonsense"):
        cluster.opened("t", **{"kafka.security.protocol": "nonsense"}).open({})
