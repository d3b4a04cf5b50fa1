"""JSON files as a source."""
