"""Suites of other folders as they run on Spark: on a cluster (`test_cluster*.py`) and over Spark Connect
(`test_connect*.py`)."""
