"""Mutated files of the compile cache: whatever they hold, the answer is right, and changed files are not used."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

from tests.robustness.mutations.edits import mutate_bytes
from tests.robustness.mutations.kind import Finding, expect_project_errors

TABLE = "CREATE TABLE t AS SELECT i % 5 AS k, i AS v, 'text ' || i % 7 AS s FROM range(500) t(i)"
QUESTIONS = (
    "SELECT k, sum(v) AS total, count(*) AS n FROM t WHERE v > 30 GROUP BY k ORDER BY k",
    "SELECT s, max(v) AS top FROM t GROUP BY s ORDER BY s",
    "SELECT count(*) AS n, sum(a.v) AS total FROM t a JOIN t b ON a.k = b.v",
)


class CacheEntries:
    """A folder after three queries: objects, programs, plans and the key."""

    name = "cache"

    def __init__(self, folder: Path):
        from tsql.kernels.codegen.object_cache import flush

        self.folder = folder / "cache"
        os.environ |= {"TSQL_CACHE": str(self.folder), "TSQL_STORED_PLANS": "1", "TSQL_BETTER_CODE": "0"}
        self.wanted = self._answers()
        flush()
        self.whole = {path.name: path.read_bytes() for path in sorted(self.folder.iterdir())}

    def case(self, random: Random) -> dict[str, bytes]:
        """Some files, with what is in them now."""
        names = random.sample(sorted(self.whole), random.choice((1, 1, 2, 5, len(self.whole))))
        if random.randrange(4) == 0:
            return dict(
                zip(names, [self.whole[name] for name in random.sample(sorted(self.whole), len(names))], strict=True)
            )
        return {name: mutate_bytes(self.whole[name], random) for name in names}

    def show(self, case: dict[str, bytes]) -> str:
        return "\n".join(f"{name}: {len(data)} bytes for {len(self.whole[name])}" for name, data in case.items())

    def run(self, case: dict[str, bytes]) -> str:
        from tsql.kernels.codegen import object_cache
        from tsql.kernels.codegen.llvm import compiler

        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700)
        for name, data in {**self.whole, **case}.items():
            (self.folder / name).write_bytes(data)
            (self.folder / name).chmod(0o600)
        object_cache._opened = None
        changed = {name for name, data in case.items() if data != self.whole[name]}
        with expect_project_errors():
            found = self._answers()
        if found != self.wanted:
            raise Finding(f"other rows: {found}")
        used = {key for key, one in compiler()._memory.items() if one.origin == "disk"}
        if used & changed:
            raise Finding(f"changed code was linked: {sorted(used & changed)}")
        object_cache.flush()
        left = {name for name in changed & compiler()._memory.keys() if (self.folder / name).read_bytes() == case[name]}
        if left:
            raise Finding(f"damaged entries were not written again: {sorted(left)}")
        return "unchanged" if not changed else "made again" if changed & compiler()._memory.keys() else "rows"

    def _answers(self) -> list[Any]:
        """What the questions give in a process that has compiled nothing."""
        import tsql
        from tsql.kernels.codegen.llvm import compiler

        for known in (compiler()._memory, compiler()._shared, compiler()._routines):
            known.clear()
        with tsql.connect(threads=1) as db:
            db.sql(TABLE)
            return [db.sql(question).fetchall() for question in QUESTIONS]

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
