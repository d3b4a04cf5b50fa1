"""Aggregate functions, one module per group. `registry.AGGREGATES` imports them all when one is looked for."""
