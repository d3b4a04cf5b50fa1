"""Physical plans: `Step` and the operators, the passes that complete and check a plan, estimates, and the plan file.

A step describes itself (`step.py`). To add one is a file in `operators/`: its fields, `attributes` and `read`, and what
is not true of it of the defaults in `Step`."""
