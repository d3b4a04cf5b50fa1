"""What names mean in a session: tables, views, macros, streams, files."""
