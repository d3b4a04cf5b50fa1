"""The benchmark of live queries over a few rows: every part compares its answers, and a wrong one ends it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.live import PARTS, main
from bench.live_cases import jobs
from bench.live_cases.feeding import TIMES, Feeding, answers, pieces
from bench.live_cases.queries import OPERATORS, YAHOO, tables
from bench.live_cases.union import compare

pytestmark = pytest.mark.usefixtures("settled")


@pytest.mark.parametrize("part", PARTS)
def test_every_part(part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "live.json"
    assert main(["--quick", "--only", part, "--json", str(file)]) == 0
    lines = json.loads(file.read_text())[part]
    shown = capsys.readouterr().out
    assert lines and all(line["name"] in shown for line in lines)


def test_wrong_options() -> None:
    for given in (["--only", "no such part"], ["--rows", "0"], ["--runs", "0"]):
        with pytest.raises(SystemExit) as wrong:
            main(given)
        assert wrong.value.code == 2


def test_pieces_keep_their_promises() -> None:
    """All rows come, in pieces of the same number, and none before an earlier promise."""
    data = tables(next(case for case in OPERATORS if case.name == "ASOF join"), 1_001)
    promised, rows = -(2**63), dict.fromkeys(data, 0)
    for batches, to in pieces(data, TIMES, 100):
        for name, batch in batches.items():
            rows[name] += batch.num_rows
            assert batch["ts"][0].value >= promised
        promised = to
    assert rows == {name: table.num_rows for name, table in data.items()}


def test_wrong_answers_are_seen() -> None:
    data = tables(YAHOO, 500)
    feeding = Feeding(YAHOO.sql, data)
    given = pieces(data, TIMES, 100)
    assert list(answers(YAHOO, feeding, given)) == []
    (why,) = answers(replace(YAHOO, oracle=YAHOO.oracle.replace("'view'", "'click'")), feeding, given)
    assert why.startswith("YSB: DuckDB and the bounded query")
    (why,) = answers(YAHOO, feeding, given[:-1])
    assert why.startswith("YSB: the bounded query and the live one")
    feeding.close()


def test_a_cycle_repeats_later() -> None:
    """The rows of a job: the same again, in whole windows later, and from any offset."""
    source = jobs.Cycle(tables(YAHOO, 300)["ads"], 100, 2)
    batches = list(source(0))
    assert len(batches) == 6 and sum(batch.num_rows for batch in batches) == source.rows == 600
    shift = batches[3]["event_time"][0].value - batches[0]["event_time"][0].value
    assert shift == source.span and shift % 10_000_000 == 0
    assert [batch.to_pydict() for batch in source(4)] == [batch.to_pydict() for batch in batches[4:]]


def test_unions_of_late_streams() -> None:
    """Both give the same rows. An ordering union holds more, the later a stream is; ours holds groups."""
    (near, _, why), (far, ordered, other) = compare(1, 30), compare(20, 30)
    assert why is None and other is None
    assert ordered.rows > 200_000 and far.rows < ordered.rows / 2 and near.rows < far.rows
