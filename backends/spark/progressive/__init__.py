"""Progressive runs on a cluster: the units that waves of tasks read (`units.py`), how large a wave is (`schedule.py`),
the waves and the groups that they leave with the driver (`waves.py`), what a task of a wave does (`task.py`), and the
run that shows a snapshot per wave (`run.py`)."""
