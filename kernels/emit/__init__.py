"""Pipelines of operators to KIR: how rows, values, keys and entries are emitted."""
