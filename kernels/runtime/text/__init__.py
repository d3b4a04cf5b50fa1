"""Text in the kernel language: parsing and printing of values, UTF-8, search."""
