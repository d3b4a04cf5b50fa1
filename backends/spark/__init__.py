"""The Spark backend: Spark schedules, moves and recovers; the kernels of tsql read and compute inside its tasks.

`cut.py` divides a plan at global movement, `stages` makes a stage of each part, `task.py` is what runs in it.
"""

from __future__ import annotations

from tsql.backends.spark.backend import SparkBackend
from tsql.backends.spark.frame import FrameSource

__all__ = ["FrameSource", "SparkBackend"]
