"""How rows of the wire travel between the tasks of a run: as RDDs (`rdd.py`), or as DataFrames (`frames.py`)."""
