"""A topic of Kafka → the rows of a stream. Connector `kafka`, over confluent-kafka (librdkafka).

Messages are taken in batches and decoded as batches (`formats`). A partition of the topic is a partition of the
stream, and its offset is the offset of the next message. Offsets are kept in the checkpoint and nowhere else:
partitions are assigned explicitly, so no consumer group rebalances them. With `group`, offsets that are in a checkpoint
are also committed to that group, where tools that show lag look for them; they are never read.

Partitions that are added to the topic are found while the stream is read, and read from their beginning. A message
without a value (a tombstone) has no row: it is counted. Messages of transactions that were aborted, or are still open,
are not seen (isolation level read_committed). Offsets whose messages were deleted are an error, not a jump.

Options that begin with `kafka.` are given to librdkafka: those of `ALLOWED`, for authentication, networks and buffers.
Others could load libraries, run commands (Kerberos), or change what the offsets promise."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import confluent_kafka as ck

from tsql.backends.live.formats.format import format_of
from tsql.backends.live.sources.columns import empty_batch
from tsql.backends.live.sources.notices import Notices
from tsql.backends.live.sources.reader import Arrival, Offset
from tsql.kernels.expr.errors import SourceError
from tsql.kernels.expr.schema import Schema
from tsql.kernels.process import forks

PREFIX = "kafka."
ALLOWED = (
    "broker.", "check.crcs", "client.id", "client.rack", "client.dns.lookup", "connections.max.idle.ms", "fetch.",
    "max.partition.fetch.bytes", "metadata.", "queued.", "receive.message.max.bytes", "reconnect.",
    "request.timeout.ms", "retry.", "sasl.mechanism", "sasl.oauthbearer.", "sasl.password", "sasl.username",
    "security.protocol", "socket.", "ssl.ca.", "ssl.certificate.", "ssl.cipher.suites", "ssl.crl.location",
    "ssl.curves.list", "ssl.endpoint.identification.algorithm", "ssl.key.", "ssl.keystore.", "ssl.sigalgs.list",
)  # fmt: skip
"""Properties of librdkafka that a user may set, by how they begin."""

MOST_MESSAGES = 100_000
WAKE_SECONDS = 0.1
TOMBSTONES = "messages without a value"


class KafkaReader:
    """Reads all partitions of a topic."""

    replays = True

    def __init__(self, options: Mapping[str, Any], schema: Schema, name: str) -> None:
        self.schema, self.name, self.notices = schema, name, Notices()
        self._topic: str = options["topic"]
        self._brokers: str = options["brokers"]
        self._latest: bool = options["start"] == "latest"
        self._follow: bool = options["follow"]
        self._timeout: float = options["timeout"]
        self._look_seconds: float = options["discover_interval"]
        self._commits = "group" in options
        self._format = format_of(options, schema, self.notices)
        self._settings = {
            **properties(options),
            "bootstrap.servers": self._brokers,
            "group.id": options.get("group", f"tsql-{name}"),
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": not self._follow,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "log_level": 2,
            "error_cb": lambda error: self.notices.tell(f"Kafka: {error.str()}"),
            "on_commit": self._committed,
        }
        self._consumer: ck.Consumer | None = None
        self._offsets: dict[int, int] = {}
        self._fresh: list[int] = []
        self._ends: dict[int, int] = {}
        """Where the partitions end whose ends are not reached, if the stream ends there."""
        self._next_look = 0.0
        self._behind: int | None = None
        self._closing = threading.Event()
        self._busy = forks.lock()

    def open(self, offsets: Mapping[str, Offset]) -> None:
        known: dict[int, int] = {}
        for partition, offset in offsets.items():
            if not partition.isdecimal() or isinstance(offset, bool) or not isinstance(offset, int):
                raise SourceError(f"the offset of {self.name} in the checkpoint is damaged")
            known[int(partition)] = offset
        try:
            self._consumer = ck.Consumer(self._settings)
        except (ck.KafkaException, ValueError, TypeError) as error:
            raise SourceError(f"{self.name}: Kafka refuses an option: {error}") from None
        found = self._partitions(self._consumer)
        gone = sorted(known.keys() - found)
        if gone:
            raise SourceError(
                f"{self._topic}: partition {gone[0]}, which is in the checkpoint, does not exist any more"
            )
        self._begin(known, found - known.keys(), self._latest)
        self._consumer.assign(self._places(self._offsets))
        self._next_look = time.monotonic() + self._look_seconds

    def poll(self, rows: int, seconds: float) -> Sequence[Arrival] | None:
        deadline = time.monotonic() + seconds
        with self._busy:
            while not self._closing.is_set():
                consumer = self._opened()
                if self._fresh:
                    # A new partition is told with where it begins: `latest` is another place after a restart.
                    fresh, self._fresh = self._fresh, []
                    return [Arrival(str(one), empty_batch(self.schema), self._offsets[one]) for one in fresh]
                if not self._follow and not self._ends:
                    return None
                now = time.monotonic()
                if self._follow and now >= self._next_look:
                    self._look(consumer)
                    continue
                messages = self._taken(consumer, min(rows, MOST_MESSAGES), max(0.0, min(WAKE_SECONDS, deadline - now)))
                arrivals = self._arrivals(messages)
                if arrivals or (now >= deadline and (self._follow or self._ends)):
                    self._measure(consumer)
                    return arrivals
        return []

    def behind(self) -> int | None:
        """Messages in the topic behind those that were read, as the last answer of the brokers told."""
        return self._behind

    def acknowledge(self, offsets: Mapping[str, Offset]) -> None:
        """Commit the offsets to the group. Nothing depends on it, so it does not wait."""
        if self._commits and self._consumer is not None and offsets:
            self._consumer.commit(
                offsets=self._places({int(partition): offset for partition, offset in offsets.items()}),
                asynchronous=True,
            )

    def close(self) -> None:
        self._closing.set()
        with self._busy:
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                consumer.close()

    def _opened(self) -> ck.Consumer:
        if self._consumer is None:
            raise SourceError(f"{self.name} is not open")
        return self._consumer

    def _taken(self, consumer: ck.Consumer, most: int, seconds: float) -> list[Any]:
        """What is there. Only the first message is waited for: `consume` would wait until it has all."""
        messages = consumer.consume(most, 0)
        if not messages and seconds > 0:
            messages = consumer.consume(1, seconds)
            if messages and most > 1:
                messages += consumer.consume(most - 1, 0)
        return messages

    def _arrivals(self, messages: Iterable[Any]) -> list[Arrival]:
        by_partition: dict[int, tuple[list[bytes], list[int]]] = {}
        for message in messages:
            error = message.error()
            if error is not None:
                self._meet(error, message)
                continue
            values, offsets = by_partition.setdefault(message.partition(), ([], []))
            offsets.append(message.offset())
            value = message.value()
            values.append(value)
        return [
            self._arrival(partition, values, offsets) for partition, (values, offsets) in sorted(by_partition.items())
        ]

    def _arrival(self, partition: int, values: list[bytes], offsets: list[int]) -> Arrival:
        end = offsets[-1] + 1
        if None in values:
            kept = [number for number, value in enumerate(values) if value is not None]
            self.notices.left_out[TOMBSTONES] += len(values) - len(kept)
            values, offsets = [values[number] for number in kept], [offsets[number] for number in kept]
        batch = self._format.decode(values, lambda i: f"{self._topic}, partition {partition}, offset {offsets[i]}")
        self._offsets[partition] = end
        if end >= self._ends.get(partition, end + 1):
            del self._ends[partition]
        return Arrival(str(partition), batch, end)

    def _meet(self, error: Any, message: Any) -> None:
        """An error in place of a message."""
        code = error.code()
        if code == ck.KafkaError._PARTITION_EOF:
            # The last offset may be a mark of a transaction, which no message has.
            self._ends.pop(message.partition(), None)
        elif code == ck.KafkaError._AUTO_OFFSET_RESET:
            raise SourceError(
                f"{self._topic}: partition {message.partition()} has no message with offset "
                f"{self._offsets[message.partition()]}: it was deleted before it was read, or the topic was made anew",
                hint="a job without its checkpoint begins where the option start says",
            )
        elif error.fatal() or not error.retriable():
            raise SourceError(f"{self._topic}: {error.str()}")
        else:
            self.notices.tell(f"Kafka: {error.str()}")

    def _partitions(self, consumer: ck.Consumer) -> set[int]:
        """The partitions of the topic."""
        try:
            topic = consumer.list_topics(self._topic, self._timeout).topics[self._topic]
        except ck.KafkaException as error:
            raise SourceError(f"Kafka at {self._brokers} does not answer: {error.args[0].str()}") from None
        if topic.error is not None:
            raise SourceError(f"{self._topic}: {topic.error.str()}")
        return set(topic.partitions)

    def _begin(self, known: Mapping[int, int], others: Iterable[int], latest: bool) -> None:
        """Begin to read at offsets that are known, and other partitions at one of their ends."""
        consumer = self._opened()
        found = dict(known)
        for partition in [*others, *(() if self._follow else known)]:
            try:
                ends = consumer.get_watermark_offsets(ck.TopicPartition(self._topic, partition), self._timeout)
            except ck.KafkaException as error:
                raise SourceError(f"{self._topic}, partition {partition}: {error.args[0].str()}") from None
            found.setdefault(partition, ends[1] if latest else ends[0])
            if not self._follow and found[partition] != ends[1]:
                self._ends[partition] = ends[1]
        self._offsets |= found
        self._fresh += sorted(found)

    def _look(self, consumer: ck.Consumer) -> None:
        """Find partitions that were added."""
        self._next_look = time.monotonic() + self._look_seconds
        try:
            added = self._partitions(consumer) - self._offsets.keys()
            if added:
                # All of their messages came after the stream had begun.
                self._begin({}, added, latest=False)
        except SourceError as error:
            self.notices.tell(f"the partitions of {self._topic} are not known at the moment: {error.message}")
            return
        if added:
            consumer.incremental_assign(self._places({partition: self._offsets[partition] for partition in added}))

    def _measure(self, consumer: ck.Consumer) -> None:
        behind = 0
        for partition, offset in self._offsets.items():
            ends = consumer.get_watermark_offsets(ck.TopicPartition(self._topic, partition), cached=True)
            behind += max(0, ends[1] - offset) if ends is not None and ends[1] >= 0 else 0
        self._behind = behind

    def _places(self, offsets: Mapping[int, int]) -> list[ck.TopicPartition]:
        return [ck.TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]

    def _committed(self, error: Any, partitions: Any) -> None:
        if error is not None:
            self.notices.tell(f"Kafka did not take the offsets for the group: {error.str()}")


def properties(options: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """The properties of librdkafka among the options, without the prefix."""
    found: dict[str, str | int | float | bool] = {}
    for name, value in options.items():
        if not name.startswith(PREFIX):
            continue
        plain = name.removeprefix(PREFIX)
        if not plain.startswith(ALLOWED):
            raise SourceError(
                f"option {name} cannot be set: it is not one for authentication, networks or buffers",
                hint=f"those that can begin with {', '.join(ALLOWED)}",
            )
        if not isinstance(value, str | int | float | bool):
            raise SourceError(f"option {name} is a text, a number, true or false")
        found[plain] = value
    return found
