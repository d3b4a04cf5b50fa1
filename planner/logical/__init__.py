"""Logical plans: the nodes, how rules walk them, and what is certain of their rows."""
