"""What a kind of mutated input is: `Kind` makes a case from its number and runs it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import Any, Protocol


class Finding(AssertionError):
    """A case that did what no input may do."""


class Kind(Protocol):
    """Made once per process, with an empty folder of its own."""

    def __init__(self, folder: Path): ...

    def case(self, random: Random) -> Any:
        """A mutated input; the same for the same state of `random`."""

    def run(self, case: Any) -> str:
        """What came of it ("rows", "refused", ..), to be counted; raises Finding."""

    def show(self, case: Any) -> str:
        """The case as a person would repeat it."""

    def close(self) -> None: ...


def expect_project_errors() -> AbstractContextManager[None]:
    """Only errors of the project may leave the block; another exception is a finding."""
    return _OnlyProjectErrors()


class _OnlyProjectErrors(AbstractContextManager[None]):
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        from tsql.kernels.expr.errors import TsqlError

        if isinstance(error, TsqlError):
            text = str(error)
            if "Traceback" in text or not text.strip():
                raise Finding(f"a message that is no message: {text!r}") from error
            if "internal error" in text.lower():
                raise Finding(text) from error
        elif isinstance(error, Exception) and not isinstance(error, Finding):
            raise Finding(f"{type(error).__name__}: {error}") from error
