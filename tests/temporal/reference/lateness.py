"""Watermarks row by row, written from the definition: slow, and right about which row is late."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.temporal.reference.rows import Row, Rows


@dataclass
class SlowLateness:
    """Rows come one at a time; `delay_us` is the watermark expression `ts - delay`."""

    delay_us: int
    allowed_us: int
    policy: str
    partitions: int = 1
    idle_us: int | None = None
    current: int | None = None
    kept: Rows = field(default_factory=list)
    late: Rows = field(default_factory=list)
    marks: dict[int, int] = field(default_factory=dict)
    heard: dict[int, int] = field(default_factory=dict)

    def take(self, row: Row, partition: int = 0, clock_us: int = 0) -> None:
        self.heard[partition] = clock_us
        time = row["ts"]
        self._advance(clock_us)
        bound = None if self.current is None else self.current - self.allowed_us
        if time is not None and bound is not None and time < bound:
            self.late.append(row)
            if self.policy == "ADJUST":
                self.kept.append({**row, "ts": bound})
        else:
            self.kept.append(row)
        if time is not None:
            self.marks[partition] = max(self.marks.get(partition, time - self.delay_us), time - self.delay_us)
        self._advance(clock_us)

    def _advance(self, clock_us: int) -> None:
        active = [
            p for p in range(self.partitions) if self.idle_us is None or clock_us - self.heard.get(p, 0) < self.idle_us
        ]
        if active and all(p in self.marks for p in active):
            least = min(self.marks[p] for p in active)
            self.current = least if self.current is None else max(self.current, least)
