"""The Kafka sink against the cluster that librdkafka plays: messages, keys, the progress record, and recovery.

This cluster shows messages of aborted transactions and shuts out no older process, so what depends on these is not
shown here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.live.sinks.failures import Disk, Killed
from tests.live.sinks.jobs import Checkpoint, batches_of, expected, ordered, output, run
from tests.live.sinks.targets import Kafka
from tsql.backends.live.sinks import kafka
from tsql.backends.live.sinks.connectors import sink_of
from tsql.backends.live.sinks.sink import CHANGE, Output
from tsql.kernels.expr.errors import TsqlError
from tsql.kernels.expr.types import BIGINT, TINYINT, VARCHAR

CHANGES = pa.schema([("k", pa.int64()), ("text", pa.string()), (CHANGE, pa.int8())])


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Kafka]:
    yield Kafka(tmp_path)


def changes(*rows: tuple[int | None, str, int]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(zip(*rows), CHANGES)], schema=CHANGES)


def decoded(messages: list[tuple[bytes | None, bytes | None]]) -> list[tuple[object, object]]:
    return [(key and json.loads(key), value and json.loads(value)) for key, value in messages]


def test_changes_by_key(target: Kafka) -> None:
    """An epoch has one message for each key that it changes: the row, or a tombstone."""
    sink = target.sink()
    sink.open(Output(CHANGES, (BIGINT, VARCHAR, TINYINT), "job-a", True, ("k",)))
    sink.recover(0, None)
    sink.write(changes((1, "a", 1), (2, "b", 1), (None, "c", 1)))
    sink.write(changes((1, "a", -1), (1, "d", 1)))
    sink.commit(1, sink.prepare(1))
    sink.write(changes((2, "b", -1), (3, "e", 1), (3, "e", -1)))
    sink.commit(2, sink.prepare(2))
    sink.close()
    found = decoded(target.messages())
    assert sorted(found[:], key=repr) == sorted(
        [
            ({"k": 1}, {"k": 1, "text": "d"}),
            ({"k": 2}, {"k": 2, "text": "b"}),
            ({"k": None}, {"k": None, "text": "c"}),
            ({"k": 2}, None),
        ],
        key=repr,
    )
    of_two = [value for key, value in found if key == {"k": 2}]
    assert of_two == [{"k": 2, "text": "b"}, None]


def test_changes_without_keys(target: Kafka) -> None:
    sink = target.sink()
    sink.open(Output(CHANGES, (BIGINT, VARCHAR, TINYINT), "job-a", True))
    sink.recover(0, None)
    sink.write(changes((1, "a", 1), (1, "a", -1)))
    sink.commit(1, sink.prepare(1))
    sink.close()
    found = decoded(target.messages())
    assert {key for key, _ in found} == {None}
    assert sorted(value["change"] for _, value in found if isinstance(value, dict)) == [-1, 1]


def test_progress(target: Kafka) -> None:
    """The record of an epoch is in the transaction of its rows."""
    run(target.sink(progress_topic="mine"), Checkpoint(), 3, output())
    found = decoded([(None, value) for _, value in target.messages("mine")])
    assert [value for _, value in found] == [{"job": "job-a", "topic": "out", "epoch": e} for e in (1, 2, 3)]
    assert {key for key, _ in target.messages("mine")} == {b"job-a out"}
    (folder,) = target.folder.iterdir()
    assert folder.name == "checkpoint-staging" and list(folder.iterdir()) == []


def test_kills(target: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Around the transaction, and in the midst of the staged files."""
    (target.folder / "checkpoint-staging").mkdir()
    disk = Disk(None)
    with monkeypatch.context() as during:
        disk.use(during)
        run(target.sink(topic="whole"), Checkpoint(), 3, output(), disk.step)
    places = sorted({disk.calls.index(name) + 1 for name in disk.calls} | {len(disk.calls) - 1})
    assert [name for name in ("write", "fsync", "unlink", "behind the checkpoint") if name not in disk.calls] == []
    for place in places:
        checkpoint, topic = Checkpoint(), f"out-{place}"
        dying = Disk(place)
        with monkeypatch.context() as during, pytest.raises(Killed):
            dying.use(during)
            run(target.sink(topic=topic), checkpoint, 3, output(), dying.step)
        dying.revive()
        run(target.sink(topic=topic), checkpoint, 5, output())
        found = [json.loads(value) for _, value in target.messages(topic) if value is not None]
        rows = sorted((row["epoch"], row["row"]) for row in found)
        assert rows == [row[:2] for row in expected(5)], disk.calls[place - 1]


def test_staging_that_is_not_kept(tmp_path: Path) -> None:
    """A job without checkpoints stages in a folder that ends with it."""
    target = Kafka(tmp_path)
    sink = sink_of("kafka", {"brokers": target.servers, "topic": "out"})
    sink.open(output())
    folder = sink._folder  # type: ignore[attr-defined]
    assert folder.is_dir()
    run(sink, Checkpoint(), 3, output())
    assert not folder.exists()
    assert ordered(target.rows()) == expected(3)


def test_staged_rows_that_are_gone(target: Kafka) -> None:
    sink = target.sink()
    sink.open(output())
    sink.recover(0, None)
    for rows in batches_of(1):
        sink.write(rows)
    token = sink.prepare(1)
    sink.close()
    (staged,) = (target.folder / "checkpoint-staging").iterdir()
    staged.unlink()
    sink = target.sink()
    sink.open(output())
    with pytest.raises(TsqlError, match="topic out: the rows of epoch 1 were written before the checkpoint, and are"):
        sink.recover(1, token)
    sink.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.plugin.library.paths": "x.so"}, "option kafka.plugin.library.paths cannot be set"),
        ({"kafka.sasl.kerberos.kinit.cmd": "rm"}, "option kafka.sasl.kerberos.kinit.cmd cannot be set"),
        ({"kafka.transactional.id": "x"}, "option kafka.transactional.id cannot be set"),
        ({"topic": "../out"}, "'../out' cannot be the name of a Kafka topic"),
        ({"progress_topic": "out"}, "options topic and progress_topic are the same topic, out"),
    ],
)
def test_refused_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(TsqlError) as caught:
        sink_of("kafka", {"brokers": "127.0.0.1:1", "topic": "out", **options})
    assert caught.value.message == message


def test_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "WAIT_SECONDS", 0.5)
    sink = sink_of("kafka", {"brokers": "127.0.0.1:1", "topic": "out"})
    with pytest.raises(TsqlError, match="^cannot write Kafka topic out: .*"):
        sink.open(output())
    sink.close()
