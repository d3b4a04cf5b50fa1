"""Aggregate functions, one module per group. `registry.AGGREGATES` imports them all on the first lookup."""
