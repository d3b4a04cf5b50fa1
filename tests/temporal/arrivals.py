"""Rows as they arrive: batches in disorder, and punctuations between them that keep their promise. For operators that
consume, punctuate, save and restore."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.temporal.reference.rows import Rows

HOW = ("every row", "sometimes", "at the end")
"""When punctuations come. Results must not depend on it."""


@dataclass(frozen=True)
class Punctuation:
    """No later row has a time before `time_us`; None: no later row at all."""

    time_us: int | None


Message = Rows | Punctuation


def arrivals(rows: Rows, time: str, how: str, seed: int = 0, disorder: int = 5) -> list[Message]:
    """The rows in batches. A row comes up to `disorder` places early or late; rows without a time come anywhere. The
    last message ends the input.

    A punctuation says as much as it can, or less. What decides ties by input order is `rows`' order: rows of equal
    time, or of none, keep it."""
    rng = random.Random(f"{how} {seed} {disorder} {len(rows)}")
    timed = sorted((row for row in rows if row[time] is not None), key=lambda row: row[time])
    late = {row[time]: rng.random() * disorder for row in timed}
    coming = [
        row
        for _, row in sorted(
            ((place + late[row[time]], row) for place, row in enumerate(timed)), key=lambda pair: pair[0]
        )
    ]
    timeless = [row for row in rows if row[time] is None]
    for place, row in reversed(list(zip(sorted(rng.randint(0, len(coming)) for _ in timeless), timeless, strict=True))):
        coming.insert(place, row)
    messages: list[Message] = []
    position = 0
    while position < len(coming):
        count = 1 if how == "every row" else rng.randint(1, 7)
        messages.append(coming[position : position + count])
        position += count
        if how == "every row" or (how == "sometimes" and rng.random() < 0.4):
            messages.extend(_promise(coming[position:], time, rng))
    return [*messages, Punctuation(None)]


def interleaved(streams: list[list[Message]], seed: int = 0) -> Iterator[tuple[int, Message]]:
    """The messages of several inputs in a random order, each input's own order kept, with the number of the input."""
    rng = random.Random(seed)
    waiting = [list(reversed(stream)) for stream in streams]
    while any(waiting):
        number = rng.choice([number for number, stream in enumerate(waiting) if stream])
        yield number, waiting[number].pop()


def keeps_promises(messages: list[Message], time: str) -> bool:
    """Whether no row comes after a punctuation that excludes it."""
    bound: int | None = None
    ended = False
    for message in messages:
        if isinstance(message, Punctuation):
            ended = ended or message.time_us is None
            bound = message.time_us if message.time_us is not None else bound
        elif ended or any(row[time] is not None and bound is not None and row[time] < bound for row in message):
            return False
    return True


def _promise(left: Rows, time: str, rng: random.Random) -> list[Message]:
    times = [row[time] for row in left if row[time] is not None]
    return [Punctuation(min(times) - rng.choice((0, 0, 1, 1_000_000)))] if times else []
