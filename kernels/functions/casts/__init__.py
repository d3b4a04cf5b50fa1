"""CAST and TRY_CAST, one file per family of types."""
