"""Mutated input of every kind, run until something breaks: `python -m tests.robustness.mutations --help`.

A *kind* (sql.py, files.py, databases.py, ..) makes case `n` of a seed and runs it. A case may answer or fail with an
error of the project. Anything else is a finding: another exception, a crash, no end, or other rows than the oracle's.
"""
