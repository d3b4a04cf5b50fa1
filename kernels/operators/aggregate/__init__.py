"""Aggregation inside pipelines: sinks that gather groups, sources that read them and combine panes."""
