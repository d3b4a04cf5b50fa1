"""Physical plans: `Step` and the operators, the passes that complete and check a plan, estimates, and plan files.

A step describes itself (`step.py`). To add one, write a file in `operators/`: its fields, `attributes`, `read`, and
overrides of the defaults in `Step` that do not hold for it."""
