"""What every exact sink does: rows of committed epochs are seen, each once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.sinks.jobs import Checkpoint, batches_of, expected, ordered, output, run
from tests.live.sinks.targets import TARGETS, Target
from tsql.backends.live.sinks.sink import Sink
from tsql.kernels.expr.errors import TsqlError

EPOCHS = 9


@pytest.fixture(params=sorted(TARGETS))
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    url = request.getfixturevalue("postgres_server").url() if request.param == "postgres" else ""
    made: Target = TARGETS[request.param](tmp_path, url)
    return made


def begun(target: Target, epoch: int = 0, token: object = None, job: str = "job-a") -> Sink:
    sink = target.sink()
    sink.open(output(job))
    sink.recover(epoch, token)
    return sink


def epoch_of(sink: Sink, epoch: int, job: str = "job-a") -> object:
    for rows in batches_of(epoch, job):
        sink.write(rows)
    return sink.prepare(epoch)


@pytest.mark.parametrize("is_ahead", [False, True])
def test_epochs(target: Target, is_ahead: bool) -> None:
    """Rows of epochs with and without rows, in the order in which they came."""
    run(target.sink(), Checkpoint(), EPOCHS, output(), is_ahead=is_ahead)
    assert ordered(target.rows()) == expected(EPOCHS)


def test_what_is_seen(target: Target) -> None:
    sink = begun(target)
    assert sink.is_exact
    assert sink.last_committed() == 0
    for epoch in range(1, EPOCHS):
        token = epoch_of(sink, epoch)
        assert ordered(target.rows()) == expected(epoch - 1)
        sink.commit(epoch, token)
        assert ordered(target.rows()) == expected(epoch)
        assert sink.last_committed() == epoch
    sink.close()
    sink.close()


def test_second_commit(target: Target) -> None:
    sink = begun(target)
    tokens = []
    for epoch in (1, 2):
        tokens.append(epoch_of(sink, epoch))
        sink.commit(epoch, tokens[-1])
        sink.commit(epoch, tokens[-1])
    sink.commit(1, tokens[0])
    assert ordered(target.rows()) == expected(2)
    sink.close()
    sink = begun(target, 2, tokens[1])
    sink.commit(2, tokens[1])
    assert ordered(target.rows()) == expected(2)
    sink.close()


def test_last_committed_of_a_new_process(target: Target) -> None:
    sink = begun(target)
    for epoch in (1, 2):
        sink.commit(epoch, epoch_of(sink, epoch))
    sink.close()
    again = target.sink()
    again.open(output())
    assert again.last_committed() == 2
    again.close()


def test_prepared_and_no_checkpoint(target: Target) -> None:
    """The job begins again at the checkpoint before: rows that were prepared later are forgotten."""
    sink = begun(target)
    token = epoch_of(sink, 1)
    sink.commit(1, token)
    epoch_of(sink, 2)
    sink.close()
    sink = begun(target, 1, token)
    assert ordered(target.rows()) == expected(1)
    for epoch in (2, 3):
        sink.commit(epoch, epoch_of(sink, epoch))
    assert ordered(target.rows()) == expected(3)
    sink.close()


def test_prepared_and_a_checkpoint(target: Target) -> None:
    sink = begun(target)
    sink.commit(1, epoch_of(sink, 1))
    token = epoch_of(sink, 2)
    for rows in batches_of(3):
        sink.write(rows)
    sink.close()
    sink = begun(target, 2, token)
    assert ordered(target.rows()) == expected(2)
    assert sink.last_committed() == 2
    sink.close()
    begun(target, 2, token).close()
    assert ordered(target.rows()) == expected(2)


def test_written_and_closed(target: Target) -> None:
    sink = begun(target)
    for rows in batches_of(1):
        sink.write(rows)
    sink.close()
    assert target.rows() == []
    sink = begun(target)
    sink.commit(1, epoch_of(sink, 1))
    assert ordered(target.rows()) == expected(1)
    sink.close()


def test_older_checkpoint(target: Target) -> None:
    """A checkpoint from before the results would write them again."""
    sink = begun(target)
    for epoch in (1, 2):
        sink.commit(epoch, epoch_of(sink, epoch))
    sink.close()
    again = target.sink()
    again.open(output())
    with pytest.raises(TsqlError, match="up to epoch 2, and the checkpoint is at epoch 0"):
        again.recover(0, None)
    again.close()
    assert ordered(target.rows()) == expected(2)


def test_other_jobs(target: Target) -> None:
    """Another job's rows stay, those that are prepared too."""
    if target.__class__.__name__ == "InMemory":
        pytest.skip("a MemorySink belongs to one job")
    sink = begun(target, job="job-a-1")
    token = epoch_of(sink, 1, "job-a-1")
    sink.commit(1, token)
    token = epoch_of(sink, 2, "job-a-1")
    sink.close()
    other = begun(target)
    other.commit(1, epoch_of(other, 1))
    other.close()
    sink = begun(target, 2, token, "job-a-1")
    assert sink.last_committed() == 2
    sink.close()
    assert ordered(target.rows()) == ordered(expected(2, "job-a-1") + expected(1))
