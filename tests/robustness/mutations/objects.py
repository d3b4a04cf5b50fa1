"""Mutated object code with a valid tag: it is refused, or can be linked. It is not run, because its instructions may do
anything."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from tests.robustness.mutations.edits import mutate_bytes

QUERY = (
    "SELECT s, sum(i), avg(i / 3.0) FROM (SELECT i, 'x' || i % 9 AS s FROM range(100) t(i)) WHERE s LIKE "
    "'x%' GROUP BY s ORDER BY 2"
)
VALUES = (0, 1, 0x7F, 0x80, 0xFF)


class Objects:
    """The objects of a query. LLVM's linker ends the process where it does not expect something, which is a finding."""

    name = "objects"

    def __init__(self, folder: Path):
        import tsql
        from tests.cache_entries import content_of, entries, label_of
        from tsql.kernels.codegen.object_cache import flush
        from tsql.kernels.codegen.objects import ObjectCode

        os.environ |= {"TSQL_CACHE": str(folder / "cache"), "TSQL_BETTER_CODE": "0"}
        with tsql.connect(threads=1) as db:
            db.sql(QUERY).fetchall()
        flush()
        self.objects = [
            ObjectCode.decode(content_of(path)) for path in entries(folder / "cache") if label_of(path)[1] == "code"
        ]

    def case(self, random: Random) -> tuple[int, bytes]:
        """Most changes are to the tables, where they matter, and not to the instructions."""
        number = random.randrange(len(self.objects))
        code = self.objects[number].code
        start, end = random.choice(_tables(code))
        if start == end or random.randrange(8) == 0:
            return number, mutate_bytes(code, random)
        changed, at = bytearray(code), random.randrange(start, end)
        for place in range(at, min(at + random.choice((1, 2, 4, 8)), len(code))):
            changed[place] = random.choice((*VALUES, random.randrange(256)))
        return number, bytes(changed)

    def show(self, case: tuple[int, bytes]) -> str:
        number, code = case
        before = self.objects[number].code
        changes = [
            f"{at:#x}: {old:#04x} -> {new:#04x}" for at, (old, new) in enumerate(zip(before, code)) if old != new
        ]
        return f"object {number} of {len(before)} bytes, now {len(code)}: " + ", ".join(changes[:40])

    def run(self, case: tuple[int, bytes]) -> str:
        from tsql.kernels.codegen.elf import DamagedObject, check_object
        from tsql.kernels.codegen.llvm import compiler
        from tsql.kernels.codegen.object_cache import UNUSABLE
        from tsql.kernels.codegen.objects import ObjectCode

        number, code = case
        known = self.objects[number]
        try:
            check_object(code)
            compiler()._link(f"{case}", ObjectCode(code, known.exports, known.imports), 0.0, "disk")
        except DamagedObject:
            return "refused"
        except UNUSABLE:
            return "refused by the linker"
        return "linked"

    def close(self) -> None: ...


def _tables(code: bytes) -> list[tuple[int, int]]:
    """Where the header, the sections, the symbols, the relocations and the names are."""
    from tsql.kernels.codegen.elf import HEADER, SECTION

    head = HEADER.unpack_from(code)
    end = head[9] + head[15] * SECTION.size
    sections = SECTION.iter_unpack(code[head[9] : end])
    return [(0, HEADER.size), (head[9], end), *((one[4], one[4] + one[5]) for one in sections if one[1] in (2, 3, 4))]
