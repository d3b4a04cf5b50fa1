"""Contexts of LLVM outlive the threads that use them, and modules that die late."""

from __future__ import annotations

import gc
import threading

from tsql.kernels.codegen.llvm import compiler


def test_a_module_that_dies_with_its_thread() -> None:
    """A traceback may keep a module in a cycle, with the thread that made it: freeing the context first crashes
    LLVM."""
    import llvmlite.binding as binding

    contexts = set()

    def work() -> None:
        context = compiler()._context()
        contexts.add(id(context))
        cycle: list[object] = [context, binding.parse_assembly("define i32 @f() { ret i32 1 }", context)]
        cycle.append(cycle)

    for _ in range(50):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        del thread
        gc.collect()
    assert len(contexts) < 10
