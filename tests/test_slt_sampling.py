"""Which records of the corpus run under which configuration by default."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.slt import records as slt
from tests.slt.engines import CONFIGS
from tests.slt.sampling import CORPUS, RISKS, at_risk, each, sample
from tests.slt_runner import corpus_files, run_file


def test_every_configuration_has_its_risks() -> None:
    assert set(RISKS) == set(CONFIGS) - {"default"}
    missing = {
        risk
        for risks in RISKS.values()
        for risk in risks
        if not (CORPUS / risk).is_dir() and not (CORPUS / f"{risk}.slt").is_file()
    }
    assert not missing


def test_every_record_runs_by_default_and_a_quarter_of_them_under_another_configuration() -> None:
    twice = total = 0
    for path in corpus_files():
        records = slt.read(path)
        runs = Counter(record.line for config in CONFIGS for record in sample(path, records, config))
        assert {record.line for record in sample(path, records, "default")} == {record.line for record in records}
        twice += sum(runs[record.line] > 1 for record in records)
        total += len(records)
    assert 0.25 < twice / total < 0.5


@pytest.mark.parametrize("config", RISKS)
def test_a_sample_is_a_part(config: str) -> None:
    """Some of everything, and more of what the configuration is about."""
    whole: Counter[bool] = Counter()
    kept: Counter[bool] = Counter()
    for path in corpus_files():
        records, risky = slt.read(path), at_risk(path, config)
        whole[risky] += len(records)
        kept[risky] += len(sample(path, records, config))
    assert 0.008 * whole[False] < kept[False] < 0.1 * whole[False]
    assert 1.5 * kept[False] / whole[False] < kept[True] / whole[True] < 0.5


def test_what_others_build_on_is_kept() -> None:
    text = """statement ok
CREATE TABLE t (x INTEGER)

query I
INSERT INTO t VALUES (1)
----
1

query I
WITH q AS (SELECT 2 AS x) INSERT INTO t SELECT x FROM q
----
1

statement error Could not convert
INSERT INTO t VALUES ('x')

query I
SELECT x FROM t
----
1
2
"""
    records = slt.parse(text)
    assert [record.line for record in each(records, 1)] == [record.line for record in records]
    for turn in range(50):
        assert each(records, 50, turn) in (records, [])  # without the query there is nothing to build for
    assert sum(each(records, 50, turn) == records for turn in range(50)) == 1
    transaction = slt.parse("statement ok\nBEGIN\n\n" + text)
    assert each(transaction, 1000) == transaction


def test_a_sample_of_a_file_passes(tmp_path: Path) -> None:
    """A record that is left out is left out on both sides: no difference is made up."""
    from contextlib import closing

    from tests.slt.engines import Tsql

    with closing(Tsql(CONFIGS["spill"])) as engine:
        assert run_file(CORPUS / "dml" / "insert.slt", engine, "spill", sampled=True) == []
