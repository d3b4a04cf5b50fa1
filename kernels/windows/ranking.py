"""row_number, rank, dense_rank, percent_rank, cume_dist, ntile: where a row stands in its partition."""

from __future__ import annotations

from tsql.kernels.codegen.lang import Val
from tsql.kernels.emit.context import PipelineKernel
from tsql.kernels.emit.datum import Datum
from tsql.kernels.expr.types import BIGINT, DOUBLE
from tsql.kernels.windows.base import Evaluator, Place


class RowNumber(Evaluator):
    """The number of the row in its partition, from 1."""

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        return Datum(BIGINT, (place.row - place.start + 1,))


class Peers(Evaluator):
    """Base of functions that are equal for peers."""

    @property
    def needs_peers(self) -> bool:
        return True


class RankEvaluator(Peers):
    """The number of the row's first peer."""

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        return Datum(BIGINT, (place.peers - place.start + 1,))


class DenseRank(Peers):
    """The number of the group of peers, from 1."""

    @property
    def counts_groups(self) -> bool:
        return True

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        return Datum(BIGINT, (place.group + 1,))


class PercentRank(Peers):
    """(rank - 1) / (rows - 1); 0 in a partition of one row."""

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        others = place.end - place.start - 1
        part = (place.peers - place.start).to("f64") / k.max(others, k.i64(1)).to("f64")
        return Datum(DOUBLE, (part,))


class CumeDist(Peers):
    """The fraction of rows that do not come after this one."""

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        return Datum(DOUBLE, ((place.peers_end - place.start).to("f64") / (place.end - place.start).to("f64"),))


class NTile(Evaluator):
    """The number of the row's bucket, from 1. If sizes differ, the first buckets have one row more."""

    def value(self, k: PipelineKernel, place: Place) -> Datum:
        buckets = place.rows.value(k, self.call.args[0], place.row).wide()
        with k.guarded(buckets.valid, self.call.position):
            k.fail(buckets.value <= 0, "Argument for ntile must be greater than zero")
        at, rows = place.row - place.start, place.end - place.start
        return Datum(BIGINT, (_bucket(k, at, rows, k.max(buckets.value, k.i64(1))),), buckets.valid)


def _bucket(k: PipelineKernel, at: Val, rows: Val, buckets: Val) -> Val:
    buckets = k.min(buckets, rows)
    size, larger = rows // buckets, rows % buckets
    in_larger = larger * (size + 1)
    return k.select(at < in_larger, at // (size + 1), larger + (at - in_larger) // size) + 1


RANKING = {
    "row_number": RowNumber,
    "rank": RankEvaluator,
    "dense_rank": DenseRank,
    "percent_rank": PercentRank,
    "cume_dist": CumeDist,
    "ntile": NTile,
}
