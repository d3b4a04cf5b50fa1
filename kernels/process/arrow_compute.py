"""`pc`: `pyarrow.compute`, imported at its first use. The import makes a Python function for each of 300 Arrow
functions and takes as long as all of pyarrow; most queries use none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:

    class _Compute:
        def __getattr__(self, name: str) -> Any:
            import pyarrow.compute

            found = getattr(pyarrow.compute, name)
            setattr(self, name, found)
            return found

    pc = _Compute()

__all__ = ["pc"]
