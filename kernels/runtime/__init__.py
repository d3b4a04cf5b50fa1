"""Routines written in KIR that kernels call: hash tables, sorting, strings, parsing and printing, Parquet pages, the
memory pool."""
