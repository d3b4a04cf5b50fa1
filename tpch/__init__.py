"""TPC-H: its data (generated once per scale by tpchgen-cli), its 22 queries, their answers, and the benchmark against
other engines. See `python -m tsql.tpch`."""
