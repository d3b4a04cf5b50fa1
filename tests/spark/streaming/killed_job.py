"""A process with a job on Spark, for a test that kills it.

python -m tests.spark.streaming.killed_job IN OUT STATE"""

from __future__ import annotations

import sys
from pathlib import Path

import tsql
from tests.spark.streaming.clicks import TUMBLE, stream_of


def main(folder: str, out: str, state: str) -> None:
    conf = {"spark.tsql.maxFilesPerTrigger": 1}
    with tsql.connect(backend="spark=local[2]", conf=conf) as db:
        db.sql(stream_of(Path(folder), follow=True))
        db.sql(TUMBLE).start(out, checkpoint=state, interval=0.05).wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
