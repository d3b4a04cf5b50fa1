"""Turns logical nodes into physical steps: chooses steps and phases by cost. `enumerate.py` names the function for each
kind of node; the other files define them."""
