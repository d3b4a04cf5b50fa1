"""Chooses the records of the corpus that a configuration runs by default; `--all-configurations` runs all of them under each.

`default` runs every record, and one of the other configurations runs it too: which one is a matter of the record's text, so that it is
the same wherever the record stands, and more often one that is likely to find something there (`RISKS`). A file that mostly changes
tables cannot be sampled by record: it runs whole under one of the configurations that it is about, or of all, and not at all under the rest.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from pathlib import Path

from tests.slt.engines import reads_only
from tests.slt.records import Record

CORPUS = Path(__file__).parent

RISKS = {
    "batch_rows_1": ("aggregates", "joins/kinds", "joins/sides", "queries/limit", "queries/mixed", "recursive", "windows"),
    "equal_hashes": ("aggregates", "joins", "queries/distinct", "queries/group_by", "queries/grouping_sets", "queries/set_operations", "subqueries/in"),
    "shards_3": ("aggregates", "joins/kinds", "queries/limit", "queries/order_by", "queries/set_operations", "recursive", "subqueries", "windows"),
    "no_optimizer": ("expressions", "joins", "subqueries", "queries/cte", "queries/filters", "queries/subqueries"),
    "interp": ("aggregates", "expressions", "functions", "windows/edges"),
    "plan_text": ("expressions", "pivot", "queries/names", "queries/select_list", "recursive", "subqueries", "windows"),
    "blocks": ("dml", "queries/filters", "queries/scans", "queries/selection", "types"),
    "spill": ("aggregates", "joins", "queries/distinct", "queries/group_by", "queries/order_by", "queries/set_operations", "windows"),
    "stored_plans": ("dml", "joins/kinds", "queries/group_by", "queries/limit"),
}
"""Folders and files that are about what a configuration changes. A folder has many records about each thing that is in it."""

TIMES = 3
"""A configuration that a file is about has so many times the chance of others to run a record of it."""

FEW = 20
"""Files with so few records run in full under the configurations that they are about."""

_CHANGES = re.compile(r"\b(insert|update|delete|merge)\b", re.IGNORECASE)


def at_risk(path: Path, config: str) -> bool:
    """Whether a file is about what a configuration changes."""
    topic = path.relative_to(CORPUS).with_suffix("").as_posix()
    return any(topic == risk or topic.startswith(risk + "/") for risk in RISKS[config])


def turns(path: Path) -> list[str]:
    """The configurations that take turns in running the records of a file, some more than once."""
    return [config for config in RISKS for _ in range(TIMES if at_risk(path, config) else 1)]


def sample(path: Path, records: list[Record], config: str) -> list[Record]:
    """The records of a file that a configuration runs by default."""
    if config not in RISKS or not path.is_relative_to(CORPUS):
        return records
    if sum(map(_may_be_left_out, records)) < len(records) / 2:
        own = [name for name in RISKS if at_risk(path, name)] or list(RISKS)
        return records if own[zlib.crc32(path.name.encode()) % len(own)] == config else []
    if len(records) <= FEW and at_risk(path, config):
        return records
    order = turns(path)
    return _kept(records, lambda number: order[number % len(order)] == config)


def each(records: list[Record], every: int, turn: int = 0) -> list[Record]:
    """One query in `every`."""
    return _kept(records, lambda number: (number + turn) % every == 0)


def _kept(records: list[Record], is_chosen: Callable[[int], bool]) -> list[Record]:
    """The queries whose number is chosen, and all that later records may build on: what changes the catalog or a table, and whole transactions.
    Nothing where no query is chosen."""
    if any(record.sql.upper().startswith("BEGIN") for record in records):
        return records
    chosen = {id(record) for record in records if _may_be_left_out(record) and is_chosen(zlib.crc32(record.sql.encode()))}
    return [record for record in records if not _may_be_left_out(record) or id(record) in chosen] if chosen else []


def _may_be_left_out(record: Record) -> bool:
    return (record.kind == "query" or record.error is not None) and reads_only(record.sql) and not _CHANGES.search(record.sql)
