"""Which records of the corpus run under which configuration by default."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.slt import records as slt
from tests.slt.engines import CONFIGS
from tests.slt.sampling import CORPUS, REST, RISK, RISKS, at_risk, each, sample
from tests.slt_runner import corpus_files, run_file


def test_every_configuration_has_its_risks() -> None:
    assert set(RISKS) == set(CONFIGS) - {"default"}
    missing = {risk for risks in RISKS.values() for risk in risks if not (CORPUS / risk).is_dir() and not (CORPUS / f"{risk}.slt").is_file()}
    assert not missing


def test_every_record_runs_by_default_and_under_another_configuration() -> None:
    for path in corpus_files():
        records = slt.read(path)
        runs = Counter(record.line for config in CONFIGS for record in sample(path, records, config))
        assert {record.line for record in sample(path, records, "default")} == {record.line for record in records}
        rare = [record.line for record in records if runs[record.line] < 2]
        assert not rare, f"{path}: lines {rare} run under one configuration"


@pytest.mark.parametrize("config", RISKS)
def test_a_sample_is_a_part(config: str) -> None:
    """More than its turn of everything, and more of what the configuration is about: of each file some."""
    whole: Counter[bool] = Counter()
    kept: Counter[bool] = Counter()
    for path in corpus_files():
        records, risky = slt.read(path), at_risk(path, config)
        taken = sample(path, records, config)
        assert not risky or any(record.kind == "query" or record.error is not None for record in taken), path
        whole[risky] += len(records)
        kept[risky] += len(taken)
    assert whole[False] / REST < kept[False] < whole[False] * 0.5
    assert 0.9 * whole[True] / RISK < kept[True] < whole[True] * 0.85


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
        taken = each(records, 50, turn)
        assert taken[:4] == records[:4]
    assert any(len(each(records, 50, turn)) == 4 for turn in range(50))
    transaction = slt.parse("statement ok\nBEGIN\n\n" + text)
    assert each(transaction, 1000) == transaction


def test_a_sample_of_a_file_passes(tmp_path: Path) -> None:
    """A record that is left out is left out on both sides: no difference is made up."""
    from contextlib import closing

    from tests.slt.engines import Tsql

    with closing(Tsql(CONFIGS["spill"])) as engine:
        assert run_file(CORPUS / "dml" / "insert.slt", engine, "spill", sampled=True) == []
