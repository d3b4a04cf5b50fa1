"""How the words of a join's keys become one hash."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val
from tsql.kernels.runtime.text.strings import mix64

HASH_SEED = 0x51ED27


def add_to_hash(k: Kernel, hash: Val, word: Val) -> Val:
    """Combine the hash so far with one more word."""
    return mix64(k, (hash * -0x61C8864680B583EB) ^ word)
