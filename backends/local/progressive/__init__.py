"""Progressive runs on this machine: the units of a sample (`units.py`), the workers that aggregate them (`worker.py`),
what is known of their spread (`confidence.py`), and the run that shows snapshots (`run.py`)."""
