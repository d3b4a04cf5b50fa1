"""tsql and SparkSQL on one Spark cluster: the session, the contenders, and what each part of the benchmarks measures.

`bench/spark.py` and `bench/bigdata.py` are the commands."""
