"""Syntax to typed logical plans: `statements.analyze` is the way in, one file per clause."""
