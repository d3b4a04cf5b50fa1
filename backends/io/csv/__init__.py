"""CSV files as a source: detection, repair of lines, values."""
