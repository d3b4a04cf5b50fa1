"""Parquet files as a source: footers, statistics, pages, and which decoder reads what."""
