"""Hashes of a dictionary's strings, computed once for all rows; joins look them up by code.

For few strings it is also known whether each hash is unique: then rows need no string comparison."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pyarrow as pa

from tsql.kernels.codegen.kir import Module
from tsql.kernels.codegen.lang import Kernel, Val
from tsql.kernels.codegen.llvm import compiler
from tsql.kernels.emit.batch import Dictionary
from tsql.kernels.emit.context import PipelineKernel, Slot
from tsql.kernels.emit.datum import Datum
from tsql.kernels.emit.rows import CodeDatum
from tsql.kernels.operators.join.key_hash import HASH_SEED, add_to_hash
from tsql.kernels.process.arrow_compute import pc
from tsql.kernels.runtime.text.strings import str_hash

FEW_STRINGS = 1 << 16
"""Up to this many strings are compared with those of another dictionary when a kernel is made."""


def hash_by_code(k: PipelineKernel, d: Datum) -> Val | None:
    """The hash of a single key that is a code of a table's dictionary; None for other values."""
    if not isinstance(d, CodeDatum) or d.column.dictionary is None:
        return None
    (hashes,) = k.slot(Slot("dictionary_hashes", None, d.column.dictionary), ("ptr",))
    return k.load("i64", hashes, d.code)


@cache
def hash_module(wide: bool) -> Module:
    """`main(record, hashes, strings)` writes the hash of each string of a dictionary, as that of a single key."""
    module = Module()
    k = Kernel(module, "main", ("ptr", "ptr", "i64"), None)
    record, hashes, strings = k.params
    offsets, text = k.load("ptr", record), k.load("ptr", record, 1)
    with k.range(strings) as code:
        start, end = (k.load("i64" if wide else "i32", offsets, at).to("i64") for at in (code, code + 1))
        k.store(hashes, add_to_hash(k, k.i64(HASH_SEED), str_hash(k, text + start, end - start)), code)
    k.ret()
    k.finish()
    return module


_MODULES = {wide: partial(hash_module, wide) for wide in (False, True)}


def string_hashes(dictionary: Dictionary) -> np.ndarray:
    """The hashes by code; kept with the dictionary."""
    found = dictionary.tables.get("hashes")
    if found is None:
        wide = pa.types.is_large_string(dictionary.values.type) or pa.types.is_large_binary(dictionary.values.type)
        hashes = np.zeros(len(dictionary) + 1, np.int64)
        compiler().routine(_MODULES[wide], rows=len(dictionary))(
            dictionary.record.address, hashes.ctypes.data, len(dictionary)
        )
        found = dictionary.tables["hashes"] = pa.py_buffer(hashes)
    return np.frombuffer(found, np.int64)[: len(dictionary)]


def tell_apart(dictionary: Dictionary, other: Dictionary | None = None) -> bool:
    """Whether different strings of a dictionary (and of another) certainly have different hashes."""
    if len(dictionary) > FEW_STRINGS or (other is not None and len(other) > FEW_STRINGS):
        return False
    hashes = string_hashes(dictionary)
    if other is None or other is dictionary:
        return len(np.unique(hashes)) == len(hashes)
    _, mine, theirs = np.intersect1d(hashes, string_hashes(other), return_indices=True)
    a, b = (d.values.take(pa.array(at)).cast(pa.large_binary()) for d, at in ((dictionary, mine), (other, theirs)))
    return bool(pc.all(pc.equal(a, b)).as_py() is not False)
