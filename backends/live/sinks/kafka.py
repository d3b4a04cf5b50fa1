"""`KafkaSink`: a message for each row, in transactions of a Kafka topic. Exactly once, for consumers that read only
committed messages.

Kafka aborts the transaction of a process that has died, so a transaction cannot be what `prepare` leaves behind. The
rows of an epoch are kept on our side instead, as an Arrow file in the folder `staging`. `commit` sends them in one
transaction, with a record (job, epoch) in the progress topic. `recover` first takes over the job's transactional id,
which ends a transaction that is still open and shuts out a process that is not quite dead, and then reads the last
record of the job: later epochs that are staged are sent again, earlier ones are not.

What this needs: the folder `staging` must survive with the checkpoint (a restart on another machine needs both), the
progress topic must keep the last record of each key (it is made as a compacted topic if it is missing), and consumers
must set `isolation.level = read_committed`. Consumers that do not may see rows of a transaction that was aborted.

Values are JSON objects, as COPY .. (FORMAT json) writes rows. Keys are the keys of the result as JSON, if the query
tells them; then a list of changes becomes one message for each key of an epoch: its row, or a tombstone (no value) if
the row is gone. Without keys, each change is a message, with its column."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tsql.backends.io.snapshot import missing
from tsql.backends.io.writers import Counted, distinct_names, write_json
from tsql.backends.live.sinks.changes import by_key
from tsql.backends.live.sinks.parquet_rows import check_folder
from tsql.backends.live.sinks.sink import Output, Token
from tsql.backends.live.sinks.staging import Staging, check_ahead, make_folder, rows_gone, writing
from tsql.kernels.expr.errors import SourceError

WAIT_SECONDS = 60
PROGRESS = "tsql-progress"

CLIENT_SETTINGS = {
    "client.id",
    "enable.ssl.certificate.verification",
    "metadata.max.age.ms",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    "socket.keepalive.enable",
    "socket.timeout.ms",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.key.pem",
}
PRODUCER_SETTINGS = {
    "batch.num.messages",
    "batch.size",
    "compression.codec",
    "compression.level",
    "compression.type",
    "delivery.timeout.ms",
    "linger.ms",
    "message.max.bytes",
    "message.timeout.ms",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "queue.buffering.max.ms",
    "request.timeout.ms",
    "retry.backoff.ms",
    "transaction.timeout.ms",
}
"""What options `kafka.*` may set. Some others of the library load a plugin or run a command (`plugin.library.paths`,
`sasl.kerberos.kinit.cmd`), and some are part of the promise (`transactional.id`)."""


class KafkaSink:
    is_exact = True
    takes_changes = True

    def __init__(
        self,
        brokers: str,
        topic: str,
        progress_topic: str = PROGRESS,
        staging: str | os.PathLike[str] | None = None,
        settings: Mapping[str, str] | None = None,
    ):
        for name in settings or {}:
            if name not in CLIENT_SETTINGS | PRODUCER_SETTINGS:
                raise SourceError(
                    f"option kafka.{name} cannot be set",
                    hint=f"these can: {', '.join(sorted(CLIENT_SETTINGS | PRODUCER_SETTINGS))}",
                )
        for name in (topic, progress_topic):
            if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) or name in (".", ".."):
                raise SourceError(f"{name!r} cannot be the name of a Kafka topic")
        if topic == progress_topic:
            raise SourceError(f"options topic and progress_topic are the same topic, {topic}")
        self._topic, self._progress = topic, progress_topic
        self._settings = {"bootstrap.servers": brokers, "log_level": 2, **(settings or {})}
        self._folder = None if staging is None else Path(staging)
        self._temporary: Path | None = None
        self._staging: Staging | None = None
        self._producer: Any = None
        self._writer: Any = None
        self._epoch, self._last, self._sent = 1, 0, 0

    def open(self, output: Output) -> None:
        self._job = output.job
        self._schema = distinct_names(output.schema)
        self._keys = output.keys
        self._upserts = output.has_changes and bool(output.keys)
        client = _library()
        with self._failing():
            self._make_topics(client)
        if self._folder is None:
            # A job without checkpoints is not resumed: what is staged goes when it ends.
            self._folder = self._temporary = Path(tempfile.mkdtemp(prefix="tsql-staging-"))
        with writing(self._folder):
            check_folder(self._folder)
        self._staging = Staging(self._folder, output.job, f".{self._topic}-", ".staged")

    def _make_topics(self, client: Any) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient(self._client_settings())
        for name, settings in ((self._topic, {}), (self._progress, {"cleanup.policy": "compact"})):
            found = admin.list_topics(name, timeout=WAIT_SECONDS).topics[name]
            if found.error is None:
                continue
            if found.error.code() != client.KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise client.KafkaException(found.error)
            partitions = 1 if settings else -1
            for made in admin.create_topics([NewTopic(name, num_partitions=partitions, config=settings)]).values():
                made.result(WAIT_SECONDS)

    def _client_settings(self) -> dict[str, Any]:
        return {name: value for name, value in self._settings.items() if name not in PRODUCER_SETTINGS}

    def recover(self, epoch: int, token: Token) -> None:
        staging, client = self._opened(), _library()
        with self._failing():
            self._producer = client.Producer(
                self._settings | {"transactional.id": f"tsql-{self._job}-{self._topic}", "acks": "all"}
            )
            self._producer.init_transactions(WAIT_SECONDS)
            self._sent = self._read_progress(client)
        check_ahead(f"topic {self._topic}", self._job, self._sent, epoch)
        with writing(staging.folder):
            make_folder(staging.folder)
            staging.remove_after(epoch)
            for prepared in staging.epochs():
                self._send(prepared)
        if token is not None and self._sent < epoch:
            raise rows_gone(f"topic {self._topic}", epoch)
        self._epoch, self._last = epoch + 1, epoch

    def _read_progress(self, client: Any) -> int:
        """The last epoch of this job that was sent. Records of other jobs are in the same partition: an open
        transaction of theirs hides what is behind it, so it is waited for."""
        settings = self._client_settings() | {
            "group.id": f"tsql-{self._job}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
        place = client.TopicPartition(self._progress, 0, client.OFFSET_BEGINNING)
        uncommitted = client.Consumer(settings | {"isolation.level": "read_uncommitted"})
        try:
            _, end = uncommitted.get_watermark_offsets(place, timeout=WAIT_SECONDS)
        finally:
            uncommitted.close()
        consumer = client.Consumer(settings | {"isolation.level": "read_committed"})
        last = 0
        try:
            consumer.assign([place])
            while end > 0:
                message = consumer.poll(WAIT_SECONDS)
                if message is None:
                    raise SourceError(f"topic {self._progress} gives no answer within {WAIT_SECONDS} s")
                error = message.error()
                if error is None:
                    if message.key() == self._key():
                        last = int(json.loads(message.value())["epoch"])
                    end = end if message.offset() + 1 < end else 0
                elif error.code() != client.KafkaError._PARTITION_EOF:
                    raise client.KafkaException(error)
                elif message.offset() >= end:
                    end = 0
        finally:
            consumer.close()
        return last

    def _key(self) -> bytes:
        return f"{self._job} {self._topic}".encode()

    def write(self, rows: pa.RecordBatch) -> None:
        with writing(self._opened().folder):
            for batch in Counted([rows], self._schema):
                if self._writer is None:
                    self._writer = pa.ipc.new_stream(self._opened().stream(self._epoch), self._schema)
                self._writer.write_batch(batch)

    def prepare(self, epoch: int) -> Token:
        self._epoch = epoch + 1
        if self._writer is None:
            return None
        with writing(self._opened().folder):
            self._writer.close()
            self._writer = None
            return {"bytes": self._opened().seal()}

    def commit(self, epoch: int, token: Token) -> None:
        if token is not None and self._sent < epoch:
            with writing(self._opened().folder):
                self._send(epoch)
        self._last = max(self._last, epoch)

    def _send(self, epoch: int) -> None:
        """Send the rows that are staged, if that has not been done, and forget them."""
        staging, client = self._opened(), _library()
        if self._sent < epoch:
            if not staging.path(epoch).exists():
                raise rows_gone(f"topic {self._topic}", epoch)
            with self._failing():
                self._producer.begin_transaction()
                try:
                    self._send_rows(epoch)
                    self._commit(client)
                except BaseException:
                    self._abort(client)
                    raise
            self._sent = epoch
        staging.remove(epoch)

    def _send_rows(self, epoch: int) -> None:
        with open(self._opened().path(epoch), "rb") as stream, pa.ipc.open_stream(stream) as rows:
            if self._upserts:
                put, gone = by_key(rows.read_all(), self._keys)
                for batch in put.to_batches():
                    self._produce(_lines(batch.select(self._keys)), _lines(batch))
                for batch in gone.to_batches():
                    self._produce(_lines(batch), None)
            else:
                for batch in rows:
                    self._produce(_lines(batch.select(self._keys)) if self._keys else None, _lines(batch))
        record = {"job": self._job, "topic": self._topic, "epoch": epoch}
        self._producer.produce(self._progress, key=self._key(), value=json.dumps(record).encode(), partition=0)

    def _produce(self, keys: Sequence[bytes] | None, values: Sequence[bytes] | None) -> None:
        for row in range(len(values if values is not None else keys or ())):
            while True:
                try:
                    self._producer.produce(
                        self._topic, key=keys[row] if keys else None, value=values[row] if values else None
                    )
                    break
                except BufferError:  # its queue is full
                    self._producer.poll(1)
        self._producer.poll(0)

    def _commit(self, client: Any) -> None:
        """A commit that takes longer than the time to wait has the same result when it is asked for again."""
        for attempt in (1, 2, 3):
            try:
                self._producer.commit_transaction(WAIT_SECONDS)
                return
            except client.KafkaException as error:
                if not error.args[0].retriable() or attempt == 3:
                    raise

    def _abort(self, client: Any) -> None:
        """End a transaction that has failed. If that fails too, the next process ends it."""
        try:
            self._producer.abort_transaction(WAIT_SECONDS)
        except client.KafkaException:
            self._producer = None

    def last_committed(self) -> int | None:
        if self._producer is None:
            with self._failing():
                self._sent = self._read_progress(_library())
        return max(self._sent, self._last)

    def close(self) -> None:
        if self._staging is not None:
            with writing(self._staging.folder):
                self._staging.discard()
                if self._writer is not None:
                    self._writer.close()
                    self._writer = None
                self._staging.drop()
        self._producer = None
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _opened(self) -> Staging:
        assert self._staging is not None, "open comes first"
        return self._staging

    def _failing(self) -> _Failing:
        return _Failing(self._topic)


class _Failing:
    """Errors of the library as errors of the topic."""

    def __init__(self, topic: str):
        self._topic = topic

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        if isinstance(error, _library().KafkaException):
            reason = error.args[0].str() if error.args else ""
            raise SourceError(f"cannot write Kafka topic {self._topic}: {reason}") from error


def _library() -> Any:
    try:
        import confluent_kafka
    except ImportError as error:
        raise missing("a Kafka topic", "confluent-kafka", "kafka", error) from error
    return confluent_kafka


def _lines(batch: pa.RecordBatch) -> list[bytes]:
    """The rows as JSON objects."""
    text = io.BytesIO()
    write_json([batch], batch.schema, text)
    return text.getvalue().split(b"\n")[:-1]
