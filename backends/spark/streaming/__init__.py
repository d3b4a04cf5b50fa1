"""Jobs over streams on Structured Streaming: Spark chooses what belongs to a micro-batch and can give it again, the
live queries of tsql compute in its tasks, and the driver ends an epoch with each micro-batch.

    place.py         the plan with its rows in shards
    parts.py         the parts between its movements
    sources.py       the streams as one streaming DataFrame
    arriving.py      its rows in a task: columns, files, messages
    marks.py         late rows, watermarks and promises
    part_query.py    the live query of a part
    states.py        the state of a shard in files; warm.py: what workers keep
    task.py          what runs in a task; spec.py: what it is told
    batch.py         a micro-batch as one job of Spark
    deal.py          the same states for another number of shards
    driver.py        what follows the last gather, and EMIT
    run.py           the job: epochs, sink, checkpoint

docs/design/live-spark.md has the design."""

from __future__ import annotations

from tsql.backends.spark.streaming.run import ClusterRun

__all__ = ["ClusterRun"]
