"""Logical nodes to physical steps: which step, in which phases, by cost. `enumerate.py` names the function for each
kind of node; the files beside it have them."""
