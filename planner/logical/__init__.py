"""Logical plans: the nodes, how rules walk them, and what is certain of their rows. A node says which columns it needs
and which expressions are its own."""
