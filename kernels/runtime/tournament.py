"""A tournament tree in the kernel language: which of many codes has the highest count; ties go to the smallest rank.

Counts and ranks are arrays of `size` words (a power of two), and so is the tree. Node i is the winner of its children
2i and 2i + 1; children from `size` on are the codes themselves. Node 1 is the overall winner. A change costs O(log
size)."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Kernel, Val, routine


@routine("tournament_child", ("ptr", "i64", "i64"), "i64")
def _winner(k: Kernel, tree: Val, size: Val, node: Val) -> None:
    with k.when(node >= size):
        k.ret(node - size)
    k.ret(k.load("i64", tree, node))


@routine("tournament_start", ("ptr", "i64"), None)
def tournament_start(k: Kernel, tree: Val, size: Val) -> None:
    """Initial state: the first code of each subtree wins."""
    node = k.var(size - 1)
    with k.forever() as loop:
        at = node.value
        loop.stop_if(at < 1)
        k.store(tree, _winner(k, tree, size, at * 2), at)
        node.set(at - 1)


@routine("tournament_update", ("ptr", "ptr", "ptr", "i64", "i64"), None)
def tournament_update(k: Kernel, tree: Val, counts: Val, ranks: Val, size: Val, code: Val) -> None:
    """Update the tree after the count or rank of a code has changed."""
    node = k.var((size + code).ushr(1))
    with k.forever() as loop:
        at = node.value
        loop.stop_if(at < 1)
        left, right = _winner(k, tree, size, at * 2), _winner(k, tree, size, at * 2 + 1)
        ours, theirs = k.load("i64", counts, left), k.load("i64", counts, right)
        better = (theirs > ours) | ((theirs == ours) & (k.load("i64", ranks, right) < k.load("i64", ranks, left)))
        winner = k.select(better, right, left)
        before = k.load("i64", tree, at)
        k.store(tree, winner, at)
        # If another code won and still wins, nothing changes further up.
        loop.stop_if((winner == before) & (winner != code))
        node.set(at.ushr(1))
