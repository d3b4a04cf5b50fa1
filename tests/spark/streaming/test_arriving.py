"""Rows of a micro-batch in a task: messages by partition, late rows, and what their watermarks promise."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest

from tests.spark.streaming.clicks import START, at
from tsql.backends.io.watermark import NEVER, Watermark
from tsql.backends.spark.streaming.arriving import NUMBER, Arriving, column_name, path_of, schema_of
from tsql.backends.spark.streaming.marks import Check, StreamMarks
from tsql.backends.spark.streaming.spec import StreamSpec
from tsql.kernels.expr.errors import SourceError
from tsql.planner.bind.binder import parse_expression

COLUMNS = [["ts", "TIMESTAMP"], ["k", "BIGINT"]]
FORMAT = {"format": "json", "ignore_errors": False, "delim": ",", "quote": '"'}
SPEC = StreamSpec("clicks", 1, "messages", ["clicks"], COLUMNS, COLUMNS, None, options=FORMAT)


def messages(rows: list[tuple[int, int, bytes | None]]) -> pa.RecordBatch:
    """What Kafka's source gives, with a row of another stream."""
    partitions, offsets, values = zip(*rows, (None, None, b"another"), strict=True)
    columns = {
        NUMBER: pa.array([1] * len(rows) + [0], pa.int32()),
        column_name(1, "partition"): pa.array(partitions, pa.int32()),
        column_name(1, "offset"): pa.array(offsets, pa.int64()),
        column_name(1, "value"): pa.array(values, pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)


def click(seconds: float, k: int) -> bytes:
    return json.dumps({"ts": str(at(seconds)), "k": k}).encode()


def test_messages_by_partition() -> None:
    """In the order of their offsets; a message without a value is none."""
    rows = [(1, 8, click(3, 30)), (0, 5, click(2, 20)), (1, 7, click(1, 10)), (0, 6, None)]
    found = {partition: batch for batch, partition in Arriving(SPEC).of(messages(rows))}
    assert found["0"].column("k").to_pylist() == [20]
    assert found["1"].column("k").to_pylist() == [10, 30]


def test_a_message_that_cannot_be_read() -> None:
    with pytest.raises(SourceError, match="partition 0, offset 6"):
        list(Arriving(SPEC).of(messages([(0, 5, click(2, 20)), (0, 6, b"{nothing")])))


def test_names_of_files() -> None:
    assert path_of("file:/in/a b.parquet") == "/in/a b.parquet"
    assert path_of("file:///in/a.parquet") == "/in/a.parquet"
    assert path_of("s3a://bucket/a.parquet") == "s3://bucket/a.parquet"


def batch(seconds: list[float]) -> pa.RecordBatch:
    times = pa.array([at(one) for one in seconds], pa.timestamp("us"))
    return pa.RecordBatch.from_pydict({"ts": times, "k": pa.array([0] * len(seconds), pa.int64())})


def watermark() -> Watermark:
    schema = schema_of(COLUMNS)
    text = "ts - INTERVAL '5 seconds'"
    return Watermark("ts", text, parse_expression(text, schema), allowed_lateness_us=1_000_000)


def test_the_watermark_stands_still_in_a_batch() -> None:
    before = StreamMarks({"a": START + 10_000_000}, START + 10_000_000, 1_000_000)
    check = Check(watermark(), before)
    # The promise is ten seconds minus the allowed one; what comes in this batch does not move it.
    assert check.passed(batch([100, 9, 8.9]), "a").num_rows == 2
    assert check.told() == {"rows": 3, "late": 1, "without_time": 0}
    after = before.after([check.marks()])
    assert after.current == START + 95_000_000 and after.promise == START + 94_000_000


def test_partitions_and_tasks() -> None:
    """The least of the partitions, the greatest of the tasks, in any order; an idle partition holds nobody up, and
    counts again when it sends."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    choose = random.Random(seed)
    told = [{name: choose.randrange(1000) for name in choose.sample("abcd", choose.randint(1, 4))} for _ in range(6)]
    marks = StreamMarks({"idle": 7}, NEVER, idle=("idle",))
    after = marks.after(told)
    greatest = {name: max(one[name] for one in told if name in one) for name in {n for one in told for n in one}}
    assert after.current == min(greatest.values())
    choose.shuffle(told)
    assert marks.after(told) == after
    assert after.after([{"idle": 9}]).current == after.current
    assert StreamMarks({"idle": 7}, NEVER).after(told).current == min(7, *greatest.values())
    assert StreamMarks.from_json(json.loads(json.dumps(after.to_json()))) == after
