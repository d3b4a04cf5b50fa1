"""Pipelines of operators to machine code: types and expressions (`expr/`), functions and aggregates, operators, their
emission as KIR (`emit/`), KIR itself and its compilation (`codegen/`). Planner and backends import it; it imports
neither."""
