"""How messages of a stream are written: bytes → the columns of a schema, one module a format (format.py).

Readers of messages (Kafka, sockets, a tailed file, PostgreSQL's COPY) call `format_of`."""
