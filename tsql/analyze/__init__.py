"""Turns syntax into typed logical plans, with one file per clause. Call `statements.analyze`."""
