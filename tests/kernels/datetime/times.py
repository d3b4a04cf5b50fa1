"""Random dates, times and intervals for the tests of their functions: years 1 to 9999, leap days, month ends, NULLs."""

from __future__ import annotations

import random
from datetime import date, datetime, time, timedelta

import pyarrow as pa

ROWS = 60
DAY_US = 86_400_000_000
EPOCH = date(1970, 1, 1)
SPECIAL_DATES = ("2000-01-01", "2000-01-03", "1999-12-31", "2000-02-29", "1900-02-28", "2020-12-31", "2021-01-01",
                 "2021-01-03", "2021-01-04", "1970-01-01", "1969-12-31", "0001-01-01", "9999-12-31", "2024-01-31",
                 "2024-03-31")  # fmt: skip


def make_times(seed: int = 11, rows: int = ROWS) -> pa.Table:
    """Columns d, e (DATE), ts, us (TIMESTAMP), tz, uz (TIMESTAMPTZ), tm, un (TIME), iv, iw (INTERVAL), n (INTEGER), x
    (DOUBLE)."""
    rng = random.Random(seed)

    def column(make, special=()):
        return [None if rng.random() < 0.08 else special[i] if i < len(special) else make() for i in range(rows)]

    def days() -> int:
        if rng.random() < 0.5:
            return (date(rng.randint(1, 9999), 1, 1) - EPOCH).days + rng.randint(0, 364)
        return (date(2020, 1, 1) - EPOCH).days + rng.randint(-3000, 3000)

    special = [(date.fromisoformat(s) - EPOCH).days for s in SPECIAL_DATES]

    def micros() -> int:
        return days() * DAY_US + rng.choice([0, rng.randrange(DAY_US), rng.randrange(86_400) * 1_000_000, DAY_US - 1])

    def clock() -> int:
        return rng.choice([0, rng.randrange(DAY_US), rng.randrange(86_400) * 1_000_000, DAY_US - 1])

    def interval() -> tuple[int, int, int]:
        def pick(top: int) -> int:
            return rng.choice([0, 0, rng.randint(-top, top)])

        return pick(40), pick(100), pick(3 * DAY_US) * 1000

    moments = [s * DAY_US + rng.choice([0, DAY_US - 1, 12 * 3_600_000_000 + 1]) for s in special]
    return pa.table(
        {
            "d": pa.array(column(days, special), pa.int32()).cast(pa.date32()),
            "e": pa.array(column(days, special[::-1]), pa.int32()).cast(pa.date32()),
            "ts": pa.array(column(micros, moments), pa.int64()).cast(pa.timestamp("us")),
            "us": pa.array(column(micros, moments[::-1]), pa.int64()).cast(pa.timestamp("us")),
            "tz": pa.array(column(micros, moments), pa.int64()).cast(pa.timestamp("us", "UTC")),
            "uz": pa.array(column(micros), pa.int64()).cast(pa.timestamp("us", "UTC")),
            "tm": pa.array(column(clock), pa.int64()).cast(pa.time64("us")),
            "un": pa.array(column(clock), pa.int64()).cast(pa.time64("us")),
            "iv": pa.array(column(interval), pa.month_day_nano_interval()),
            "iw": pa.array(column(interval), pa.month_day_nano_interval()),
            "n": pa.array(column(lambda: rng.randint(-5000, 5000)), pa.int32()),
            "x": pa.array(column(lambda: rng.choice([rng.uniform(-3, 3), 0.5, 1.1, -2.0])), pa.float64()),
        }
    )  # fmt: skip


def as_micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)


def clock_micros(moment: time) -> int:
    return as_micros(datetime.combine(EPOCH, moment))
