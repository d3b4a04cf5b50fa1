"""The machine code of the Parquet decoder: from the disk cache, or compiled in two steps so that a first query does not
wait for it.

The kernel is the same for all files, and LLVM takes half a second to compile it. So it is cached on disk, keyed by a
digest of its source files; this saves the 13 ms of emitting it in each process. If it is not cached, a quick version
(50 ms, about half as fast) reads the first rows. If there are many rows, the full version is compiled in the meantime,
and used from then on."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tsql.kernels.codegen import llvm
from tsql.kernels.codegen.llvm import FULL, QUICK, Compiled, compiler
from tsql.kernels.codegen.promote import promoter
from tsql.kernels.process import forks
from tsql.kernels.runtime.parquet import reader as parquet_reader
from tsql.kernels.runtime.parquet.operations import decoder_module

Call = Callable[[int, int, int], None]
"""(record, other record, operation), all addresses and numbers."""

_KEEPS_LOCK = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class Decoder(NamedTuple):
    """The kernel in two forms: called with the GIL released, or, for work of a few microseconds, with the GIL held. If
    another thread took the GIL then, that would cost more than the work."""

    long: Call
    short: Call

    @classmethod
    def of(cls, compiled: Compiled) -> Decoder:
        return cls(compiled.function, _KEEPS_LOCK(compiled.address))


MANY_VALUES = 1_000_000
"""After this many values, the full version is compiled."""


class TwoTiers:
    """The decoder of the process."""

    def __init__(self) -> None:
        self._lock = forks.lock()
        self._quick: Decoder | None = None
        self._full: Decoder | None = None
        self._values = 0
        self._promoted = False

    def get(self, values: int) -> Decoder:
        """The best version available, for this many values."""
        if self._full is not None:
            return self._full
        with self._lock:
            if self._full is not None:
                return self._full
            if self._quick is None:
                name = _name()
                if (kept := compiler().stored(name, FULL)) is not None:
                    self._full = Decoder.of(kept)
                    return self._full
                self._quick = Decoder.of(compiler().stored(name, QUICK) or _compiled(name, QUICK))
            self._values += values
            if self._values > MANY_VALUES and not self._promoted:
                self._promoted = True
                promoter.add(decoder_module(), self._take)
            return self._quick

    def _take(self, compiled: Compiled) -> None:
        compiler().store(_name(), decoder_module(), FULL)
        self._full = Decoder.of(compiled)


def _compiled(name: str, opt: int) -> Compiled:
    found = compiler().compile(decoder_module(), opt)
    compiler().store(name, decoder_module(), opt)
    return found


def _name() -> str:
    """The name of the decoder in the disk cache: a digest of its source files, or of its own text if there are none."""
    runtime, codegen = Path(parquet_reader.__file__).parent, Path(llvm.__file__).parent
    try:
        texts = [
            path.read_bytes()
            for path in (
                *sorted(runtime.glob("parquet_*.py")),
                codegen / "kir.py",
                codegen / "lang.py",
                codegen / "render.py",
                codegen / "llvm.py",
            )
        ]
    except OSError:
        texts = [decoder_module().text().encode()]
    return f"parquet decoder {hashlib.sha256(b''.join(texts)).hexdigest()}"


_tiers = TwoTiers()


def decoder(values: int) -> Decoder:
    """The decoder for a column chunk of this many values."""
    return _tiers.get(values)
