"""The Parquet decoder in the kernel language."""
