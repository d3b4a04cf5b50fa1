"""TPC-H: its data (made once per scale by tpchgen-cli) and its 22 queries. `python -m tsql.tpch` makes and prints them."""
