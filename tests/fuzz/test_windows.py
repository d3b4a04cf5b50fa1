"""Random window functions give what DuckDB gives, under every configuration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.compare import EXAMPLES, assert_same, fuzz
from tests.fuzz.windows import Window, windows


def _query(calls: list[Window]) -> str:
    listed = ", ".join(f"{call.text} AS w{i}" for i, call in enumerate(calls))
    return f"SELECT id, {listed} FROM mixed ORDER BY id"


@fuzz
@given(st.lists(windows(), min_size=1, max_size=3))
def test_windows(calls: list[Window]) -> None:
    assert_same(_query(calls), ordered=True)


@pytest.mark.parametrize(
    "config", ["no_optimizer", "shards_3", "batch_rows_1", "equal_hashes", "plan_text", "blocks", "interp"]
)
def test_windows_under(config: str) -> None:
    """Less often than the default configuration: the corpus runs under these too."""

    @given(windows())
    def check(call: Window) -> None:
        assert_same(_query([call]), config, ordered=True)

    fuzz(check, max(1, EXAMPLES // 3))()
