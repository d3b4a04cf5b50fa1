"""Random tests take fewer examples by default."""

from tests.fuzz.amount import pytest_configure  # noqa: F401
