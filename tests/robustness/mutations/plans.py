"""Mutated plan files: each is refused with its line, or gives the rows of its query, or `check` says that it does
not."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from random import Random
from typing import Any

import duckdb

from tests.planner.support import oracle, session
from tests.plans.queries import QUERIES
from tests.robustness.mutations.edits import mutate_bytes, mutate_sql
from tests.robustness.mutations.kind import Finding, expect_project_errors
from tests.slt.render import differing_row, render

PATIENCE_SECONDS = 5.0
"""A plan that takes longer is cancelled: many mutated plans multiply rows. The test is that it then ends."""
LINES_PER_CHANGE = 3


class Plans:
    """The plans of the queries with golden plans that DuckDB runs too, at their number of shards."""

    name = "plans"

    def __init__(self, folder: Path):
        self.folder, self.db = folder, session()
        self.rows = _rows_of_duckdb()
        self.texts: dict[str, str] = {}
        for name in self.rows:
            sql, shards = QUERIES[name]
            with session(shards=shards) as db:
                self.texts[name] = db.sql(sql).plan()
        self.donors = sorted(self.texts.values())

    def case(self, random: Random) -> tuple[str, bytes]:
        name = random.choice(sorted(self.texts))
        text = self.texts[name]
        match random.randrange(4):
            case 0:
                return name, mutate_bytes(text.encode(), random)
            case 1:
                return name, _mutate_lines(text, random).encode()
            case _:
                head, steps = _parted(text)
                return name, (head + mutate_sql(steps, self.donors, random)).encode()

    def show(self, case: tuple[str, bytes]) -> str:
        return f"the plan of {case[0]}:\n{case[1].decode(errors='backslashreplace')}"

    def run(self, case: tuple[str, bytes]) -> str:
        from tsql.kernels.expr.errors import TsqlError
        from tsql.loaded import load_plan

        name, data = case
        path = self.folder / "mutated.plan"
        path.write_bytes(data)
        try:
            with expect_project_errors():
                plan = load_plan(path)
                relation = plan.run(self.db)
        except TsqlError as error:
            if error.position is None and "is no plan file" not in str(error):  # of which nothing is shown
                raise Finding(f"an error without a line: {error}") from error
            return "refused"
        try:
            with expect_project_errors():
                found = self._answer(relation)
        except TsqlError:
            return "failed"
        if found is None:
            return "long"
        if _parted(plan.text)[0] != _parted(self.texts[name])[0]:
            return "rows of another query"
        difference = self._difference(name, found)
        if difference is None:
            return "same rows"
        try:
            with expect_project_errors():
                plan.check(self.db)
        except TsqlError:
            return "other rows, flagged"
        raise Finding(f"other rows, and `check` finds nothing wrong: {difference}")

    def _answer(self, relation: Any) -> Any:
        """The rows; None if they take too long."""
        from tsql.kernels.expr.errors import CancelledError

        timer = threading.Timer(PATIENCE_SECONDS, relation.cancel)
        timer.start()
        try:
            return relation.arrow()
        except CancelledError:
            return None
        finally:
            timer.cancel()

    def _difference(self, name: str, found: Any) -> str | None:
        """How the rows differ from those of the query, as bags. (`check` knows that any of the rows that tie at a LIMIT
        will do.)"""
        ours, theirs = render(found), render(self.rows[name])
        if ours.types != theirs.types:
            return f"types {ours.types} instead of {theirs.types}"
        return differing_row(ours.sorted("rowsort"), theirs.sorted("rowsort"), theirs.types)

    def close(self) -> None:
        self.db.close()


def _rows_of_duckdb() -> dict[str, Any]:
    """The rows of the queries, by name; those of dialects that DuckDB does not have are left out."""
    found = {}
    with oracle() as db:
        for name, (sql, _) in QUERIES.items():
            try:
                found[name] = db.sql(sql).to_arrow_table()
            except duckdb.Error:
                continue
    return found


def _parted(text: str) -> tuple[str, str]:
    """The lines up to the query line, and the steps."""
    match = re.match(r'(?:.*\n)*?query "(?:[^"\\]|\\.|"")*"\n', text)
    return ("", text) if match is None else (match.group(), text[match.end() :])


def _mutate_lines(text: str, random: Random) -> str:
    """Lines that are left out, doubled, exchanged, or joined to the next one."""
    lines = text.split("\n")
    for _ in range(random.randint(1, LINES_PER_CHANGE)):
        at, other = random.randrange(len(lines)), random.randrange(len(lines))
        match random.randrange(4):
            case 0:
                del lines[at]
            case 1:
                lines.insert(other, lines[at])
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case 3:
                lines[at : at + 2] = [" ".join(lines[at : at + 2])]
        if not lines:
            break
    return "\n".join(lines)
