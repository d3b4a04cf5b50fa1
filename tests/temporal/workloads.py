"""Seeded data for the queries of the papers: packets on network links, and clicks on ads with a few bots among the
users."""

from __future__ import annotations

import random

import pyarrow as pa

from tests.temporal.data import NOON
from tests.temporal.reference.rows import MINUTE, SECOND

PACKETS = pa.schema(
    [
        ("id", pa.int64()),
        ("src_ip", pa.string()),
        ("src_port", pa.int32()),
        ("dest_ip", pa.string()),
        ("dest_port", pa.int32()),
        ("len", pa.int32()),
        ("flag", pa.string()),
        ("ts", pa.timestamp("us")),
    ]
)
CLICKS = pa.schema([("user_id", pa.int64()), ("ad_id", pa.int64()), ("ts", pa.timestamp("us"))])
HOSTS = [f"10.0.0.{number}" for number in range(1, 5)]
PORTS = (80, 443)
SPAN = 8 * MINUTE


def packets(seed: int = 0, rows: int = 120) -> dict[str, pa.Table]:
    """Four links. Packets of `main2` are often answers to one of `main1`: from its destination to its source, soon
    after it or at the same time.

    `control` has few rows and comes late (its rows are in no order); many times are on whole minutes.
    """
    rng = random.Random(f"packets {seed} {rows}")
    main1 = sorted((_packet(rng) for _ in range(rows)), key=lambda row: row["ts"])
    main2 = sorted(
        (_answer(rng, rng.choice(main1)) if rng.random() < 0.7 else _packet(rng) for _ in range(rows)),
        key=lambda row: row["ts"],
    )
    control = [_answer(rng, rng.choice(main1)) if rng.random() < 0.5 else _packet(rng) for _ in range(rows // 6)]
    backup = [_answer(rng, rng.choice(control or main1)) for _ in range(rows // 6)]
    links = {"main1": main1, "main2": main2, "control": control, "backup": backup}
    return {
        name: pa.Table.from_pylist(
            [{"id": place} | row for place, row in enumerate(link)], schema=_as_numbers(PACKETS)
        ).cast(PACKETS)
        for name, link in links.items()
    }


def clicks(seed: int = 0, rows: int = 300) -> pa.Table:
    """Clicks of 20 users on 5 ads in an unsorted table; users 7 and 8 click in bursts. Some have no user, some no
    time."""
    rng = random.Random(f"clicks {seed} {rows}")
    made = []
    while len(made) < rows:
        user = rng.choice((7, 8, None, *range(100, 118)))
        start = rng.choice((NOON + rng.randrange(SPAN), NOON + rng.randrange(8) * MINUTE))
        for _ in range(rng.randint(2, 8) if user in (7, 8) else 1):
            made.append({"user_id": user, "ad_id": rng.randrange(5), "ts": None if rng.random() < 0.02 else start})
            start += rng.choice((0, 1, SECOND, 2 * SECOND, 10 * SECOND))
    rng.shuffle(made)
    return pa.Table.from_pylist(made[:rows], schema=_as_numbers(CLICKS)).cast(CLICKS)


def _packet(rng: random.Random) -> dict[str, object]:
    source, destination = rng.sample(HOSTS, 2)
    return {
        "src_ip": source,
        "src_port": rng.choice(PORTS),
        "dest_ip": destination,
        "dest_port": rng.choice(PORTS),
        "len": rng.randrange(40, 1500),
        "flag": rng.choice(("SYN", "SYN_ACK", "ACK")),
        "ts": rng.choice(
            (
                NOON + rng.randrange(SPAN),
                NOON + rng.randrange(8) * MINUTE,
                NOON + rng.randrange(SPAN // SECOND) * SECOND,
            )
        ),
    }


def _answer(rng: random.Random, packet: dict[str, object]) -> dict[str, object]:
    delay = rng.choice((0, 0, 1, SECOND, 5 * SECOND, 5 * SECOND + 1, 2 * MINUTE, 3 * MINUTE, -5 * SECOND))
    return packet | {
        "src_ip": packet["dest_ip"],
        "dest_ip": packet["src_ip"],
        "src_port": packet["dest_port"],
        "dest_port": packet["src_port"],
        "flag": "SYN_ACK",
        "ts": packet["ts"] + delay,
    }


def _as_numbers(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        [(field.name, pa.int64() if pa.types.is_timestamp(field.type) else field.type) for field in schema]
    )
