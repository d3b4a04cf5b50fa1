"""Progressive queries in the planner: which aggregate makes the progress (`driven.py`), where its rows come from
(`origins.py`), what must be known of its groups (`measures.py`, `terms.py`), how much a value depends on each of that
(`slopes.py`), what is certain of it (`proofs.py`), its bounds (`values.py`), and the plan that computes a snapshot of
the result (`snapshot_plan.py`)."""
