"""Executes statements that are not queries: DDL, DML, COPY, transactions, PREPARE, SHOW."""
