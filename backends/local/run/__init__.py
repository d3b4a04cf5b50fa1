"""Runs a graph of pipelines: the execution and its parts (listed in `execution.py`), datasets and flows between
pipelines, worker threads, query threads."""
