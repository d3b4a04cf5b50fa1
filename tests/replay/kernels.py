"""Watches the engine: which plans run, and which KIR modules are made runnable.

The one place of `tests/replay` that knows internals. It needs four things; if one moves, only this file follows:

- `type(session.backend)` has `run(plan, run)` and may have `run_all(plan, run)`; `plan.text()` is the plan file.
- `Compiler` has `compile(module, ..)` and `known(module, ..)`: each kernel that LLVM runs passes through one of them,
  whether or not its machine code is in a cache. `module.text()` is its KIR.
- `Compiler.stored(name, ..)` finds code by a name, without its KIR. It is made to find nothing.
- `Interpreter(module, ..)`: what the interpreter runs. By default these are constants that the planner computes.

What is the same in every query (sorting, linking, the Parquet decoder) is made once in a process, and seen with the
first query that needs it. So each part of the workload runs in a process of its own (`record.py`).

Not seen: the memory pool (`Compiler.pool`), which is loaded by the text of its source file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

ENVIRONMENT = {"TSQL_STORED_PLANS": "0", "TSQL_BETTER_CODE": "0"}
"""No plans or programs from disk, because those would not be emitted; and no recompilation in a background thread."""


@dataclass
class Seen:
    """What has run since it was last asked for."""

    plans: list[str] = field(default_factory=list)
    kernels: set[str] = field(default_factory=set)
    constants: set[str] = field(default_factory=set)

    def clear(self) -> None:
        self.plans.clear()
        self.kernels.clear()
        self.constants.clear()


def watch() -> Seen:
    """Watch this process to its end."""
    os.environ.update(ENVIRONMENT)
    import tsql
    from tsql.kernels.codegen.interp import Interpreter
    from tsql.kernels.codegen.llvm import Compiler

    seen = Seen()
    with tsql.connect() as session:
        backend = type(session.backend)
    for name in ("run", "run_all"):
        if hasattr(backend, name):
            _before(backend, name, lambda plan: seen.plans.append(plan.text()))
    for name in ("compile", "known"):
        _before(Compiler, name, lambda module: seen.kernels.add(module.text()))
    _before(Interpreter, "__init__", lambda module: seen.constants.add(module.text()))
    Compiler.stored = lambda *_: None
    return seen


def _before(owner: type, name: str, look: Callable[[Any], Any]) -> None:
    """Have `look` called with the first argument of a method before the method is."""
    method = getattr(owner, name)

    def looked(self: Any, first: Any, *rest: Any, **named: Any) -> Any:
        look(first)
        return method(self, first, *rest, **named)

    setattr(owner, name, looked)
