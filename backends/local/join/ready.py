"""`ReadyJoin`: a hash join whose inputs are available, with its sink and its operator."""

from __future__ import annotations

from collections.abc import Callable

from tsql.backends.local.run.flow import Flow
from tsql.kernels.expr.nodes import Expr
from tsql.kernels.expr.schema import Schema
from tsql.kernels.operators.join.hash_join import Build, Probe, TableKind
from tsql.kernels.operators.join.sorted_join import AsofProbe, SortedBuild
from tsql.kernels.operators.join.sorted_search import NumberBound
from tsql.kernels.process.quick_dataclass import dataclass
from tsql.planner.physical.operators.asof_join import AsofJoin
from tsql.planner.physical.operators.join import HashJoin


@dataclass
class ReadyJoin:
    """A hash join whose inputs are available. `columns` are the build-side columns that its table holds; `schema` has
    all columns of that side."""

    step: HashJoin
    built: Flow
    probed: Flow
    build_keys: tuple[Expr, ...]
    probe_keys: tuple[Expr, ...]
    columns: tuple[tuple[str, Expr], ...]
    is_shared: bool
    schema: Schema
    apart: bool = False
    """Build-side rows with a NULL key are kept, in a separate chain."""

    place: Expr | bool = False
    """For a nearest join: the expression that gives the input position of a build-side row. True: the row's own
    position."""

    @property
    def sorted_by(self) -> set[str]:
        """The build-side columns that its order needs besides those that the table holds."""
        order = self.bounds[0]
        places = self.place.columns() if isinstance(self.place, Expr) else ()
        second = () if self.reach is None else self.reach[0].columns()
        return set() if order is None else {*order.columns(), *second, *places}

    def sink(self, equal_hashes: bool) -> Callable[[], Build]:
        safe = tuple(key.null_safe for key in self.step.keys)
        order, second = self.bounds[0], None if self.reach is None else self.reach[0]
        if order is not None:
            return lambda: SortedBuild(
                self.columns, self.build_keys, safe, order, self.step.marks, equal_hashes, self.place, second
            )
        return lambda: Build(self.columns, self.build_keys, safe, self.step.marks, equal_hashes, apart=self.apart)

    def probe(self, kind: TableKind, touches: bool) -> Probe:
        """The operator that looks up rows of the probe side."""
        step = self.step
        if isinstance(step, AsofJoin):
            return AsofProbe(kind, step.name, step.kind, self.probe_keys, step.condition, step.distance, step.position)
        return Probe(
            kind,
            step.name,
            step.probe_kind,
            self.probe_keys,
            step.condition,
            step.mark,
            touches,
            step.position,
            step.early,
        )

    @property
    def bounds(self) -> tuple[Expr | None, tuple[NumberBound, ...]]:
        """For a join on a range: the number that the table is sorted by, and the bounds it is compared with."""
        if not self.step.range:
            return None, ()
        number, found = self.step.bounds(self._built_at)
        return number, tuple((one.op, one.other, one.shift) for one in found)

    @property
    def reach(self) -> tuple[Expr, NumberBound] | None:
        """For intervals that overlap: the second number of the table, and its lower bound."""
        found = self.step.reach(self._built_at)
        return None if found is None else (found[0], (found[1].op, found[1].other, found[1].shift))

    @property
    def _built_at(self) -> int:
        return 0 if self.step.build == "left" else 1
