"""The queries of the papers: Q1 - Q9 of out-of-order processing (seed 004), Trill's running example, Quill's bot
elimination.

Each is written three times: in our dialect (`queries/NAME.sql`), for DuckDB (`NAME.oracle.sql`, or the same text), and
with the references here."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from bench.ads import YSB, YSB_ORACLE, campaigns, events
from tests.temporal.asking import QUERIES, ask_duckdb, check_engine, oracle_of, text_of
from tests.temporal.data import assert_same_rows, selected, to_rows
from tests.temporal.reference.joins import band_join
from tests.temporal.reference.lifetimes import points, quantize, slide
from tests.temporal.reference.rows import MINUTE, SECOND, On, Row, Rows, count, equal, floor, group_by
from tests.temporal.reference.snapshot import aggregate, anti_join, inner_join
from tests.temporal.reference.windows import hop, tumble
from tests.temporal.workloads import clicks, packets

Tables = dict[str, Rows]
WINDOW = ("window_start", "window_end")
LIFETIME = ("valid_from", "valid_to")


def answers(one: Row, other: Row) -> bool:
    """The second packet goes from the first one's destination to its source."""
    return (one["src_ip"], one["src_port"], one["dest_ip"], one["dest_port"]) == (
        other["dst_ip"],
        other["dst_port"],
        other["from_ip"],
        other["from_port"],
    )


def answering(rows: Rows) -> Rows:
    """The right side of a join, with names of its own."""
    names = {
        "id2": "id",
        "from_ip": "src_ip",
        "from_port": "src_port",
        "dst_ip": "dest_ip",
        "dst_port": "dest_port",
        "flag2": "flag",
        "ts2": "ts",
    }
    return [{new: row[old] for new, old in names.items()} for row in rows]


def oop_q1(t: Tables) -> Rows:
    return group_by(tumble(t["control"] + t["main1"] + t["main2"], "ts", MINUTE), WINDOW, n=count)


def oop_q2(t: Tables) -> Rows:
    on: On = lambda one, other: one["src_ip"] == other["dst_ip"]
    return selected(
        band_join(t["main1"], answering(t["main2"]), on, "ts", "ts2", -2 * MINUTE + 1, 3 * MINUTE - 1), "id2", id1="id"
    )


def oop_q2_lifetimes(t: Tables) -> Rows:
    on: On = lambda one, other: one["src_ip"] == other["dst_ip"]
    pairs = inner_join(slide(t["main1"], "ts", 3 * MINUTE), slide(answering(t["main2"]), "ts2", 2 * MINUTE), on)
    return selected(pairs, "id2", *LIFETIME, id1="id")


def oop_q3(t: Tables) -> Rows:
    on: On = lambda one, other: (
        (one["dest_ip"], one["dest_port"], one["flag"], other["flag2"])
        == (other["from_ip"], other["from_port"], "SYN", "SYN_ACK")
    )
    pairs = band_join(t["main1"], answering(t["main2"]), on, "ts", "ts2", 1, 2 * MINUTE - 1)
    return group_by(selected(pairs, ts0="ts", ts1="ts2"), ("ts0", "ts1"), n=count)


def oop_q4(t: Tables) -> Rows:
    return group_by(tumble(t["main1"], "ts", MINUTE), ("src_ip", "dest_ip", "window_start"), n=count)


def oop_q5(t: Tables) -> Rows:
    return group_by(tumble(t["main1"] + t["main2"], "ts", MINUTE), ("src_ip", "dest_ip", "window_start"), n=count)


def oop_q6(t: Tables) -> Rows:
    left, right = t["main1"] + t["control"], answering(t["main2"] + t["backup"])
    pairs = [
        one | other
        for one in left
        for other in right
        if answers(one, other) and floor(one["ts"], 10 * SECOND) == floor(other["ts2"], 10 * SECOND)
    ]
    return selected(pairs, "src_ip", "dest_ip", "ts")


def oop_q7(t: Tables) -> Rows:
    pairs = band_join(t["main1"], answering(t["main2"]), answers, "ts", "ts2", -5 * SECOND, 5 * SECOND)
    return group_by(tumble(pairs, "ts", MINUTE), WINDOW, n=count)


def oop_q8(t: Tables) -> Rows:
    pairs = band_join(t["main1"], answering(t["main2"] + t["control"]), answers, "ts", "ts2", 0, 0)
    return selected(pairs, "src_ip", "dest_ip", "ts")


def oop_q9(t: Tables) -> Rows:
    return group_by(hop(t["main1"] + t["main2"] + t["control"], "ts", MINUTE, 5 * MINUTE), WINDOW, n=count)


def trill(t: Tables) -> Rows:
    sample = [row for row in t["clicks"] if row["user_id"] is not None and row["user_id"] % 100 < 5]
    return aggregate(slide(sample, "ts", 5 * MINUTE), ("ad_id",), n=count)


def bots(t: Tables) -> Rows:
    found = [row for row in aggregate(slide(t["clicks"], "ts", 10 * SECOND), ("user_id",), n=count) if row["n"] > 3]
    clean = anti_join(points(t["clicks"], "ts"), found, equal("user_id"))
    return aggregate(quantize(clean, MINUTE, MINUTE), ("ad_id",), n=count)


REFERENCES: dict[str, Callable[[Tables], Rows]] = {
    function.__name__: function
    for function in (oop_q1, oop_q2, oop_q3, oop_q4, oop_q5, oop_q6, oop_q7, oop_q8, oop_q9, trill, bots)
}
TEMPORAL = {"oop_q1", "oop_q4", "oop_q5", "oop_q6", "oop_q7", "oop_q9", "oop_q2_lifetimes", "trill", "bots"}
"""What is not plain SQL."""


@pytest.fixture(scope="module", params=[0, 1], ids=["seed 0", "seed 1"])
def data(request: pytest.FixtureRequest) -> dict[str, pa.Table]:
    return {**packets(request.param), "clicks": clicks(request.param)}


@pytest.mark.parametrize("name", REFERENCES)
def test_oracle_is_the_reference(name: str, data: dict[str, pa.Table]) -> None:
    answer = ask_duckdb(oracle_of(name), data)
    expected = REFERENCES[name]({table: to_rows(rows) for table, rows in data.items()})
    assert len(expected) > 5, "data that no query finds anything in tests nothing"
    assert_same_rows(to_rows(answer), selected(expected, *answer.column_names))


def test_lifetimes_overlap_where_the_band_is(data: dict[str, pa.Table]) -> None:
    """Q2 as lifetimes finds the pairs of the band join."""
    tables = {table: to_rows(rows) for table, rows in data.items()}
    assert_same_rows(selected(oop_q2_lifetimes(tables), "id1", "id2"), selected(oop_q2(tables), "id1", "id2"))


def test_bots_are_there(data: dict[str, pa.Table]) -> None:
    rows = to_rows(data["clicks"])
    found = [row for row in aggregate(slide(rows, "ts", 10 * SECOND), ("user_id",), n=count) if row["n"] > 3]
    assert {7, 8} <= {row["user_id"] for row in found}
    assert (
        sum(row["n"] * (row["valid_to"] - row["valid_from"]) // MINUTE for row in bots({"clicks": rows}))
        < len(rows) * 0.9
    )


@pytest.mark.parametrize("name", [*REFERENCES, "oop_q2_lifetimes"])
def test_engine(name: str, data: dict[str, pa.Table]) -> None:
    if name == "oop_q2_lifetimes":
        _check_lifetimes(data)
    else:
        check_engine(text_of(name), oracle_of(name), data)


def _check_lifetimes(data: dict[str, pa.Table]) -> None:
    """The lifetimes come with the pairs: DuckDB is asked for both."""
    oracle = """SELECT a.id AS id1, b.id AS id2, greatest(a.ts, b.ts) AS valid_from,
                       least(a.ts + INTERVAL '3 minutes', b.ts + INTERVAL '2 minutes') AS valid_to
                FROM main1 a JOIN main2 b ON a.src_ip = b.dest_ip
                 AND b.ts > a.ts - INTERVAL '2 minutes' AND b.ts < a.ts + INTERVAL '3 minutes'"""
    expected = oop_q2_lifetimes({table: to_rows(rows) for table, rows in data.items()})
    assert_same_rows(to_rows(ask_duckdb(oracle, data)), selected(expected, "id1", "id2", *LIFETIME))
    check_engine(text_of("oop_q2_lifetimes"), oracle, data)


def test_every_text_is_tested() -> None:
    assert {path.name.split(".")[0] for path in QUERIES.glob("*.sql")} == {*REFERENCES, "oop_q2_lifetimes"}
    assert {name for name in REFERENCES if text_of(name) != oracle_of(name)} == TEMPORAL - {"oop_q2_lifetimes"}


def test_yahoo_benchmark() -> None:
    """Views per campaign and 10 seconds."""
    tables = {"ads": events(3_000, ads=50, users=100, per_second=50), "campaigns": campaigns(50)}
    viewed = [
        row | {"campaign_id": row["ad_id"] // 10} for row in to_rows(tables["ads"]) if row["event_type"] == "view"
    ]
    expected = group_by(tumble(viewed, "event_time", 10 * SECOND), ("campaign_id", "window_start"), views=count)
    assert_same_rows(ask_duckdb(YSB_ORACLE, tables), expected)
    check_engine(YSB, YSB_ORACLE, tables)
