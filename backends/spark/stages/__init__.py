"""From a cut plan to the stages of a run, on the driver: what the tasks of each part are given (`stages.py`), what they
read (`scans.py`), what all of them get (`broadcasts.py`), and what other tasks send them (`movements.py`)."""

from __future__ import annotations

from tsql.backends.spark.stages.stages import Stages

__all__ = ["Stages"]
