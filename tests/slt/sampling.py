"""Chooses the records of the corpus that a configuration runs by default; `--all-configurations` runs all of them under each.

`default` runs every record. Another configuration runs one record in `RISK` of the folders and files where it is most likely to
find something (`RISKS`), and one in `REST` of the others. Which these are is a matter of the record's text, and the configurations
take turns, so that a record is run under the same configurations wherever it stands, and under at least one of them besides `default`.
A file that mostly changes tables cannot be sampled by record: it runs whole under the configurations that it is about and under one of
the others, and not at all elsewhere.
"""

from __future__ import annotations

import re
import zlib
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

RISK = 3
"""Of what is about the configuration, it runs one record in so many. It divides `REST`, so that a record whose turn is with a configuration
that it is at risk under runs there."""

FEW = 20
"""Files about the configuration with so few records run in full."""

REST = 9
"""Of the others it runs one in so many: no more than there are configurations, so that each record is somebody's turn."""

_CHANGES = re.compile(r"\b(insert|update|delete|merge)\b", re.IGNORECASE)
_TURNS = {name: turn for turn, name in enumerate(RISKS)}


def at_risk(path: Path, config: str) -> bool:
    """Whether a file is about what a configuration changes."""
    topic = path.relative_to(CORPUS).with_suffix("").as_posix()
    return any(topic == risk or topic.startswith(risk + "/") for risk in RISKS[config])


def sample(path: Path, records: list[Record], config: str) -> list[Record]:
    """The records of a file that a configuration runs by default."""
    if config not in RISKS or not path.is_relative_to(CORPUS):
        return records
    risky, turn = at_risk(path, config), _TURNS[config]
    if sum(map(_may_be_left_out, records)) < len(records) / 2:
        return records if risky or (zlib.crc32(path.name.encode()) + turn) % REST == 0 else []
    if not risky:
        return each(records, REST, turn)
    return records if len(records) <= FEW else each(records, RISK, turn)


def each(records: list[Record], every: int, turn: int = 0) -> list[Record]:
    """One query in `every`, and all that later records may build on: what changes the catalog or a table, and whole transactions."""
    if any(record.sql.upper().startswith("BEGIN") for record in records):
        return records
    return [record for record in records if not _may_be_left_out(record) or (zlib.crc32(record.sql.encode()) + turn) % every == 0]


def _may_be_left_out(record: Record) -> bool:
    return (record.kind == "query" or record.error is not None) and reads_only(record.sql) and not _CHANGES.search(record.sql)
