"""Logical nodes to physical steps: which step, in which phases, by cost."""
