"""Chooses the records of the corpus that a configuration runs by default; `--all-configurations` runs all of them under
each.

`default` runs every record, and every fourth record also runs under another configuration. A file uses only a few of
these (`turns`), because each one must also run everything that its records build on. Most of them are likely to find
something in that file (`RISKS`). A hash of a record's text decides which one runs it, so the choice does not depend on
the record's position. A file that mostly changes tables cannot be sampled by record: it runs as a whole under one of
them."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from pathlib import Path

from tests.slt.engines import reads_only
from tests.slt.records import Record

CORPUS = Path(__file__).parent

RISKS = {
    "batch_rows_1": (
        "aggregates",
        "joins/kinds",
        "joins/sides",
        "queries/limit",
        "queries/mixed",
        "recursive",
        "windows",
    ),
    "equal_hashes": (
        "aggregates",
        "joins",
        "queries/distinct",
        "queries/group_by",
        "queries/grouping_sets",
        "queries/set_operations",
        "subqueries/in",
    ),
    "shards_3": (
        "aggregates",
        "joins/kinds",
        "queries/limit",
        "queries/order_by",
        "queries/set_operations",
        "recursive",
        "subqueries",
        "windows",
    ),
    "no_optimizer": ("expressions", "joins", "subqueries", "queries/cte", "queries/filters", "queries/subqueries"),
    "interp": ("aggregates", "expressions", "functions", "windows/edges"),
    "plan_text": ("expressions", "pivot", "queries/names", "queries/select_list", "recursive", "subqueries", "windows"),
    "blocks": ("dml", "queries/filters", "queries/scans", "queries/selection", "types"),
    "spill": (
        "aggregates",
        "joins",
        "queries/distinct",
        "queries/group_by",
        "queries/order_by",
        "queries/set_operations",
        "windows",
    ),
    "repeated": ("aggregates/basic", "queries/filters", "queries/order_by", "queries/selection", "types"),
    "stored_plans": ("dml", "joins/kinds", "queries/group_by", "queries/limit"),
    "progressive": (
        "aggregates",
        "joins/kinds",
        "queries/cte",
        "queries/group_by",
        "queries/having",
        "subqueries",
        "windows",
    ),
}
"""Folders and files that test what a configuration changes. A folder has many records about each of its topics."""

MOST = 3
"""A file runs under at most this many configurations besides the default, if it has enough records."""

SAMPLED = 4
"""One record in this many runs under another configuration."""

_CHANGES = re.compile(r"\b(insert|update|delete|merge)\b", re.IGNORECASE)


def at_risk(path: Path, config: str) -> bool:
    """Whether a file is about what a configuration changes."""
    topic = path.relative_to(CORPUS).with_suffix("").as_posix()
    return any(topic == risk or topic.startswith(risk + "/") for risk in RISKS[config])


def turns(path: Path) -> list[str]:
    """The configurations that take turns on the records of a file: all but one are at risk there, if there are
    enough."""
    start = zlib.crc32(path.relative_to(CORPUS).as_posix().encode())
    rotated = [list(RISKS)[(start + number) % len(RISKS)] for number in range(len(RISKS))]
    own = [config for config in rotated if at_risk(path, config)]
    others = [config for config in rotated if config not in own]
    return (own[: MOST - 1] + others + own[MOST - 1 :])[:MOST]


def sample(path: Path, records: list[Record], config: str) -> list[Record]:
    """The records of a file that a configuration runs by default."""
    if config not in RISKS or not path.is_relative_to(CORPUS):
        return records
    order = turns(path)
    if sum(map(_may_be_left_out, records)) < len(records) / 2:
        return records if config == order[0] else []
    return _kept(records, lambda number: number % SAMPLED == 0 and order[number // SAMPLED % len(order)] == config)


def each(records: list[Record], every: int, turn: int = 0) -> list[Record]:
    """One query in `every`."""
    return _kept(records, lambda number: (number + turn) % every == 0)


def _kept(records: list[Record], is_chosen: Callable[[int], bool]) -> list[Record]:
    """The chosen queries, and everything that later records may build on: changes of the catalog or of a table, and
    whole transactions. Nothing if no query is chosen."""
    if any(record.sql.upper().startswith("BEGIN") for record in records):
        return records
    chosen = {
        id(record) for record in records if _may_be_left_out(record) and is_chosen(zlib.crc32(record.sql.encode()))
    }
    return [record for record in records if not _may_be_left_out(record) or id(record) in chosen] if chosen else []


def _may_be_left_out(record: Record) -> bool:
    return (
        (record.kind == "query" or record.error is not None)
        and reads_only(record.sql)
        and not _CHANGES.search(record.sql)
    )
