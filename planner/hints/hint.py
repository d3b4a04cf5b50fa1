"""One hint as the query states it, and the relations that hints name. `constraints.py` and `join_hints.py` read meaning
into it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tsql.kernels.expr.errors import PlanError
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.logical.nodes import Scan
from tsql.planner.physical.movement import SCOPES

_TEXTS = {"AGG": 0, "JOIN": 2}
"""The position of the text argument, for hints that have one (all other arguments are names)."""


@dataclass(frozen=True)
class Hint:
    """One hint of `/*+ .. */`: its name, its arguments (names or constants as written) and its named options."""

    name: str
    args: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    position: int | None = None

    def __str__(self) -> str:
        shown = [repr(a) if _TEXTS.get(self.name) == i else str(a) for i, a in enumerate(self.args)]
        shown += [f"{name} => {value!r}" for name, value in self.options]
        return f"{self.name}({', '.join(shown)})"

    def error(self, message: str, hint: str | None = None) -> PlanError:
        return PlanError(message, position=self.position, hint=hint)

    def refuse(self, reason: str, hint: str | None = None) -> PlanError:
        """The error that the hint cannot hold."""
        return self.error(f"{self} cannot hold: {reason}", hint)

    def allow(self, *options: str) -> None:
        """Refuse options but these."""
        for name, _ in self.options:
            if name not in options:
                raise self.error(f"{self.name} has no option {name}")

    def scope(self) -> str | None:
        """The option `scope`, if it is given."""
        scope = dict(self.options).get("scope")
        if scope is not None and scope not in SCOPES:
            raise self.error(f"{self}: the scope is 'local' or 'global'")
        return scope


@dataclass(frozen=True)
class HintTarget:
    """What a hint calls a relation: the alias of scans, or else their table."""

    name: str
    by_alias: bool

    def reads(self, scan: Scan) -> bool:
        """Whether a scan reads the relation."""
        found = scan.alias if self.by_alias else scan.table
        return found is not None and found.lower() == self.name.lower()


def find_relation(hint: Hint, name: Any, scans: Iterable[Scan]) -> HintTarget:
    """The relation that an argument names; names are compared without case, as SQL does."""
    scans = list(scans)
    for by_alias in (True, False):
        relation = HintTarget(str(name), by_alias)
        if isinstance(name, str) and any(relation.reads(scan) for scan in scans):
            return relation
    known = dict.fromkeys(scan.table if scan.alias is None else f"{scan.table} AS {scan.alias}" for scan in scans)
    raise hint.error(f"{hint}: the query reads no table {name}", f"it reads {', '.join(known)}" if known else None)
