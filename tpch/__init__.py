"""TPC-H: its data (made once per scale by tpchgen-cli), its 22 queries, their answers, and the benchmark beside other
engines; see `python -m tsql.tpch`."""
