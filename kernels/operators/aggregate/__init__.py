"""Aggregation inside pipelines: sinks that collect groups, sources that read them and combine panes."""
