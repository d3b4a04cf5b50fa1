"""Logical plans: the nodes, how rules walk them, and what is certain about their rows. Each node says which columns it
needs and which expressions it has."""
