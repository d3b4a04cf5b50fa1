"""The command `tsql` and its shell: arguments in, tables and exit codes out."""
