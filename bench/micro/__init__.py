"""Microbenchmarks: one mechanism each, checked before it is timed."""
