"""What the benchmarks of progressive queries share: kinds of data for coverage (`kinds.py`), what is counted over seeds
(`counts.py`), the queries over events (`cases.py`), and memory in a process of its own (`memory.py`)."""
