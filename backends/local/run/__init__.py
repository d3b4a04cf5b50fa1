"""Running a graph of pipelines: the execution and its parts (`execution.py` lists them), datasets and flows between
pipelines, worker threads, the thread of a query."""
