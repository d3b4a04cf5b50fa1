"""The Nexmark auction site: persons, auctions and bids in the usual proportions 1 : 3 : 46, and the queries over them
that bounded data allows.

    python -m bench.nexmark --events 1000000 --out DIR

writes `person.parquet`, `auction.parquet`, `bid.parquet` and `side_input.parquet`. Event n happens at n / `per_second`
seconds; which kind it is, and what is hot, follows the generator that Beam and Flink share. Everything is made with
numpy from a seed. `queries()` are the texts in `nexmark_queries/`: `q5.sql` in our dialect, `q5.oracle.sql` for DuckDB
where that is another text. Processing time (Q12, Q13) is event time here, and Q10 gives the rows that the original
writes."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

START_US = 1_436_918_400_000_000
"""The time of the first event, 2015-07-15 00:00:00, as in the original."""
PERSONS, AUCTIONS, EVENTS = 1, 3, 50
"""Of every 50 events, the first is a person, the next three are auctions, and the rest are bids."""
FIRST_ID = 1_000
FIRST_CATEGORY, CATEGORIES = 10, 5
IN_FLIGHT = 100
"""Bids go to one of this many latest auctions. Sellers and bidders are among ten times as many latest persons."""
HOT = 100
"""Hot auctions, sellers and bidders have numbers that are multiples of this. Half of the bids and three quarters of the
sellers and bidders are hot."""

STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
CHANNELS = ("Google", "Facebook", "Baidu", "Apple")

FOLDER = Path(__file__).parent / "nexmark_queries"
NUMBERS = tuple(range(23))


@dataclass(frozen=True)
class Query:
    """A query in our dialect, and its text for DuckDB."""

    name: str
    sql: str
    oracle: str

    @property
    def plain(self) -> bool:
        """Whether it is plain SQL, the same text for both."""
        return self.sql == self.oracle


def queries() -> list[Query]:
    """All queries, in the order of their numbers."""
    found = []
    for number in NUMBERS:
        text, oracle = FOLDER / f"q{number}.sql", FOLDER / f"q{number}.oracle.sql"
        sql = text.read_text(encoding="utf-8")
        found.append(Query(f"q{number}", sql, oracle.read_text(encoding="utf-8") if oracle.exists() else sql))
    return found


def tables(events: int, per_second: int = 10_000, seed: int = 42) -> dict[str, pa.Table]:
    """The tables of so many events."""
    numbers = np.arange(events, dtype=np.int64)
    kind = numbers % EVENTS
    times = START_US + numbers * 1_000_000 // per_second
    random = {
        name: np.random.default_rng([seed, place])
        for place, name in enumerate(("person", "auction", "bid", "side_input"))
    }
    is_person, is_auction = kind < PERSONS, (kind >= PERSONS) & (kind < PERSONS + AUCTIONS)
    is_bid = ~is_person & ~is_auction
    return {
        "person": _persons(numbers[is_person], times[is_person], random["person"]),
        "auction": _auctions(numbers[is_auction], times[is_auction], per_second, random["auction"]),
        "bid": _bids(numbers[is_bid], times[is_bid], random["bid"]),
        "side_input": pa.table(
            {
                "key": pa.array(np.arange(10_000)),
                "value": _numbered("value-", random["side_input"].integers(0, 1_000, 10_000)),
            }
        ),
    }


def write(folder: Path, events: int, per_second: int = 10_000, seed: int = 42) -> dict[str, Path]:
    """The tables as Parquet files in `folder`; their paths by name."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for name, table in tables(events, per_second, seed).items():
        paths[name] = folder / f"{name}.parquet"
        pq.write_table(table, paths[name])
    return paths


def _persons(numbers: np.ndarray, times: np.ndarray, random: np.random.Generator) -> pa.Table:
    count = len(numbers)
    first, last = random.integers(0, len(FIRST_NAMES), count), random.integers(0, len(LAST_NAMES), count)
    return pa.table(
        {
            "id": pa.array(FIRST_ID + numbers // EVENTS),
            "name": pa.array(
                np.array(FIRST_NAMES, object)[first] + " " + np.array(LAST_NAMES, object)[last], pa.string()
            ),
            "email_address": _texts(random, count, 7, suffix="@example.com"),
            "credit_card": pa.array([f"{n:016}" for n in random.integers(0, 10**16, count).tolist()], pa.string()),
            "city": _chosen(CITIES, random.integers(0, len(CITIES), count)),
            "state": _chosen(STATES, random.integers(0, len(STATES), count)),
            "date_time": pa.array(times).cast(pa.timestamp("us")),
            "extra": _texts(random, count, 20),
        }
    )


def _auctions(numbers: np.ndarray, times: np.ndarray, per_second: int, random: np.random.Generator) -> pa.Table:
    count = len(numbers)
    first_bid = _prices(random, count)
    # On average an auction is open until as many others as are in flight have started.
    horizon = IN_FLIGHT * EVENTS // AUCTIONS * 1_000_000 // per_second
    return pa.table(
        {
            "id": pa.array(FIRST_ID + _auction_of(numbers)),
            "item_name": _texts(random, count, 12),
            "description": _texts(random, count, 40),
            "initial_bid": pa.array(first_bid),
            "reserve": pa.array(first_bid + _prices(random, count)),
            "date_time": pa.array(times).cast(pa.timestamp("us")),
            "expires": pa.array(times + 1_000 + random.integers(0, max(2 * horizon, 1), count)).cast(
                pa.timestamp("us")
            ),
            "seller": pa.array(_person(numbers, random)),
            "category": pa.array(FIRST_CATEGORY + random.integers(0, CATEGORIES, count)),
            "extra": _texts(random, count, 20),
        }
    )


def _bids(numbers: np.ndarray, times: np.ndarray, random: np.random.Generator) -> pa.Table:
    count = len(numbers)
    latest = _auction_of(numbers)
    hot = latest // HOT * HOT
    cold = np.maximum(latest - random.integers(0, IN_FLIGHT, count), 0)
    channel = random.integers(0, 10_000, count)
    is_known = random.random(count) < 0.5
    known = random.integers(0, len(CHANNELS), count)
    names = np.where(
        is_known, np.array(CHANNELS, object)[known], np.char.add("channel-", channel.astype("U5")).astype(object)
    )
    page = np.char.mod("https://www.example.com/%d", random.integers(0, 1_000, count))
    path = np.char.mod("/item-%d", random.integers(0, 100, count))
    query = np.where(
        random.random(count) < 0.9, np.char.mod("/item.htm?query=1&channel_id=%d", channel), "/item.htm?query=1"
    )
    return pa.table(
        {
            "auction": pa.array(FIRST_ID + np.where(random.random(count) < 0.5, hot, cold)),
            "bidder": pa.array(_person(numbers, random, hot_offset=1)),
            "price": pa.array(_prices(random, count)),
            "channel": pa.array(names, pa.string()),
            "url": pa.array(np.char.add(np.char.add(page, path), query).astype(object), pa.string()),
            "date_time": pa.array(times).cast(pa.timestamp("us")),
            "extra": _texts(random, count, 20),
        }
    )


def _auction_of(numbers: np.ndarray) -> np.ndarray:
    """The number of the latest auction at an event, from 0."""
    started = np.clip(numbers % EVENTS - PERSONS + 1, 0, AUCTIONS)
    return np.maximum(numbers // EVENTS * AUCTIONS + started - 1, 0)


def _person(numbers: np.ndarray, random: np.random.Generator, hot_offset: int = 0) -> np.ndarray:
    """The id of a person who exists at the event: a hot one three times out of four."""
    latest = numbers // EVENTS
    hot = np.minimum(latest // HOT * HOT + hot_offset, latest)
    cold = np.maximum(latest - random.integers(0, 10 * IN_FLIGHT, len(numbers)), 0)
    return FIRST_ID + np.where(random.random(len(numbers)) < 0.75, hot, cold)


def _prices(random: np.random.Generator, count: int) -> np.ndarray:
    """Prices in cents, from 1 to a million units, distributed evenly by logarithm."""
    return np.rint(10 ** (random.random(count) * 6) * 100).astype(np.int64)


def _texts(random: np.random.Generator, count: int, letters: int, suffix: str = "") -> pa.Array:
    """Random small letters."""
    codes = random.integers(ord("a"), ord("z") + 1, (count, letters), dtype=np.uint8)
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * letters)
    texts = pa.StringArray.from_buffers(count, offsets.buffers()[1], pa.py_buffer(codes.tobytes()))
    if not suffix:
        return texts
    return pa.array([text + suffix for text in texts.to_pylist()], pa.string())


def _chosen(words: tuple[str, ...], codes: np.ndarray) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), pa.array(words)).cast(pa.string())


def _numbered(prefix: str, numbers: np.ndarray) -> pa.Array:
    return pa.array([f"{prefix}{number}" for number in numbers.tolist()], pa.string())


def main(arguments: list[str] | None = None) -> int:
    """Write the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.nexmark", description="Make Nexmark data as Parquet files")
    parser.add_argument(
        "--events", type=int, default=1_000_000, help="persons, auctions and bids together (default: 1 million)"
    )
    parser.add_argument(
        "--per-second", type=int, default=10_000, help="events per second of event time (default: 10 thousand)"
    )
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    options = parser.parse_args(arguments)
    if options.events < 1 or options.per_second < 1:
        parser.error("--events and --per-second are positive numbers")
    for name, path in write(options.out, options.events, options.per_second, options.seed).items():
        print(f"{name}: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
