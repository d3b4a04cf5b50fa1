"""`KernelStore`: the kernels of plans, kept by a backend as long as the plans live.

A plan that runs again compiles nothing, and from its third run on it may repeat recorded calls (`run/repeat.py`). Both
need a store that is keyed by the plan and freed with it, since recordings hold memory. Plans compare equal by content,
which is slow to check, so kernels are keyed by identity."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from tsql.backends.local.run.kernels import Kernels

if TYPE_CHECKING:
    from tsql.planner.physical.step import PhysicalPlan


class KernelStore:
    """The kernels of each plan that a backend has run.

    Any thread may ask at any time. There is no lock: it could be held in the child of a fork, or by a thread in which
    the garbage collector drops a plan. Instead each step is a single dict operation. `Kernels` must not refer to its
    plan, or the plan would never be freed."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[weakref.ref[PhysicalPlan], Kernels]] = {}

    def of(self, plan: PhysicalPlan) -> Kernels:
        """The kernels of a plan: the same object as long as the plan lives."""
        found = self._kept.get(id(plan))
        return found[1] if found is not None and found[0]() is plan else self._new(plan)

    def _new(self, plan: PhysicalPlan) -> Kernels:
        # The callback must not refer to the store, or the store would live until the next garbage collection.
        store, key = weakref.ref(self), id(plan)

        def forget(_: weakref.ref[PhysicalPlan]) -> None:
            # The plan's memory is not reused yet, so no other plan can have its id.
            mine = store()
            if mine is not None:
                mine._kept.pop(key, None)

        made = weakref.ref(plan, forget), Kernels()
        found = self._kept.setdefault(key, made)
        if found[0]() is not plan:  # Ctrl-C in `forget` has left the entry of a plan that is gone
            self._kept[key] = found = made
        return found[1]

    def clear(self) -> None:
        """Forget all plans. Active runs keep what they use."""
        self._kept.clear()
