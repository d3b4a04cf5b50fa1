"""The queries of the temporal benchmark as lazy queries of Polars; `temporal_cases.py` has the texts of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

Lazy = Callable[[Mapping[str, "pl.LazyFrame"]], "pl.LazyFrame"]
"""A query over frames by name. Polars is imported on demand: the benchmark must run without it."""


def tumble(table: str, seconds: int) -> Lazy:
    """Filter, tumble, sum by ad."""

    def query(frames: Mapping[str, pl.LazyFrame]) -> pl.LazyFrame:
        import polars as pl

        start = pl.col("event_time").dt.truncate(f"{seconds}s").alias("window_start")
        return (
            frames[table]
            .filter(pl.col("event_type") == "view")
            .group_by(start, "ad_id")
            .agg(pl.col("amount").sum().alias("total"))
        )

    return query


def hop(table: str, seconds: int, key: str) -> Lazy:
    """Filter, hop every second, sum by key. The rows must be in time order."""

    def query(frames: Mapping[str, pl.LazyFrame]) -> pl.LazyFrame:
        import polars as pl

        # Without the offset there would be no windows before the one that starts with the first row.
        windows = (
            frames[table]
            .filter(pl.col("event_type") == "view")
            .group_by_dynamic("event_time", every="1s", period=f"{seconds}s", offset=f"-{seconds - 1}s", group_by=key)
        )
        return windows.agg(pl.col("amount").sum().alias("total")).select(
            pl.col("event_time").alias("window_start"), key, "total"
        )

    return query


def session(table: str) -> Lazy:
    """Sessions of users with a gap of 2 seconds."""

    def query(frames: Mapping[str, pl.LazyFrame]) -> pl.LazyFrame:
        import polars as pl

        ordered = frames[table].select("user_id", "event_time", "amount").sort("user_id", "event_time")
        far = pl.col("event_time").diff() > pl.duration(seconds=2)
        another = pl.col("user_id") != pl.col("user_id").shift()
        numbered = ordered.with_columns((far | another).fill_null(True).cum_sum().alias("number"))
        found = numbered.group_by("number").agg(
            pl.col("user_id").first(),
            pl.col("event_time").min().alias("window_start"),
            (pl.col("event_time").max() + pl.duration(seconds=2)).alias("window_end"),
            pl.len().cast(pl.Int64).alias("n"),
            pl.col("amount").sum().alias("total"),
        )
        return found.drop("number")

    return query


def asof(frames: Mapping[str, pl.LazyFrame]) -> pl.LazyFrame:
    """Trades with the last quote before each. Both tables are in time order."""
    import polars as pl

    pairs = (
        frames["trades"]
        .join_asof(frames["quotes"], on="ts", by="sym", check_sortedness=False)
        .filter(pl.col("bid").is_not_null())
    )
    return pairs.select(pl.len().cast(pl.Int64).alias("n"), (pl.col("price") - pl.col("bid")).sum().alias("gain"))
