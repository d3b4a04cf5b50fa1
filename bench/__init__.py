"""Benchmarks against peers, in one process, on the same data; answers are compared before times are counted."""
