"""A checkpoint under another query, in another folder of the same job, and damaged in every way."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import tsql
from tests.live.jobs.test_emit import SCHEMA, events
from tests.live.scripted import cut, scripted
from tests.patience import wait_until
from tests.temporal.asking import ask_engine
from tests.temporal.data import assert_same_rows, to_rows
from tsql.backends.live.jobs.checkpoint import Checkpoint
from tsql.backends.live.jobs.job import JobRun
from tsql.cli.command import main
from tsql.kernels.expr.errors import PlanError, SourceError, TsqlError

SUM = "SELECT window_start, sum(v)::BIGINT AS s FROM TUMBLE(events, ts, INTERVAL '10 seconds') GROUP BY window_start"
MOST = "SELECT window_start, max(v) AS most FROM TUMBLE(events, ts, INTERVAL '10 seconds') GROUP BY window_start"
TWO = f"SELECT 's' AS what, window_start, s FROM ({SUM}) UNION ALL SELECT 'most', window_start, most FROM ({MOST})"
TURNED = f"SELECT 'most' AS what, window_start, most AS s FROM ({MOST}) UNION ALL SELECT 's', * FROM ({SUM})"
ROWS = 200
TABLE = events(3, ROWS)
PIECES = cut(TABLE, 3, most=3)


def session_of(threads: int = 1, ends: bool = True, rows: int = len(PIECES)) -> tsql.Session:
    session = tsql.connect(threads=threads)
    scripted(session, "events", {"p": PIECES[:rows]}, SCHEMA, "ts", ends=ends, watermark="ts - INTERVAL '6 seconds'")
    return session


def begun(sql: str, folder: Path) -> None:
    """A job that was stopped after half of its rows."""
    with session_of(ends=False, rows=len(PIECES) // 2) as session:
        job = session.sql(sql).start(folder / "out", checkpoint=folder / "state", interval=0.001)
        wanted = sum(piece.rows.num_rows for piece in PIECES[: len(PIECES) // 2])
        assert wait_until(lambda: job.progress().rows_in == wanted)
        job.stop()


def finish(sql: str, folder: Path, threads: int = 1) -> pa.Table:
    with session_of(threads) as session:
        session.sql(sql).start(folder / "out", checkpoint=folder / "state", interval=0.001).wait(60)
        return session.sql(f"FROM '{folder}/out/*.parquet'").arrow()


def test_goes_on(tmp_path: Path) -> None:
    begun(SUM, tmp_path)
    assert_same_rows(to_rows(finish(SUM, tmp_path, 3)), to_rows(ask_engine(SUM, {"events": TABLE})))


CHANGED = {
    "the same": (SUM, ["kept"]),
    "a filter above": (f"SELECT * FROM ({SUM}) WHERE s > 20", ["kept"]),
    "another name": (SUM.replace("AS s", "AS total"), ["kept", "refused: the result had the columns"]),
    "another aggregate": (SUM.replace("sum(v)", "max(v)"), ["dropped", "refused: step"]),
    "changes": (f"{SUM} EMIT CHANGES", ["kept", "refused: the result was a list of final rows, and now is not"]),
}


@pytest.mark.parametrize("what", CHANGED)
def test_another_query(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql, wanted = CHANGED[what]
    begun(SUM, tmp_path)
    with session_of() as session:
        found = session.sql(sql).compare_checkpoint(tmp_path / "state")
        assert all(any(line.startswith(word) for line in found.lines()) for word in wanted), found.lines()
        if found.refused:
            with pytest.raises(PlanError, match="the job cannot go on from its checkpoint") as refused:
                session.sql(sql).start(tmp_path / "out", checkpoint=tmp_path / "state")
            assert "tsql check --checkpoint" in str(refused.value)
        else:
            session.sql(sql).start(tmp_path / "out", checkpoint=tmp_path / "state").wait(60)


def test_check_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkdir(tmp_path / "in")
    stream = (
        f"CREATE STREAM events (k BIGINT, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts) WITH (connector = 'parquet', "
        f"path = '{tmp_path}/in/*.parquet', follow = true);"
    )
    (tmp_path / "q.sql").write_text(f"{stream} {SUM}")
    (tmp_path / "other.sql").write_text(f"{stream} {SUM.replace('sum(v)', 'max(v)')}")
    state = str(tmp_path / "state")
    assert main(["check", "--checkpoint", state, str(tmp_path / "q.sql")]) == 1
    assert "there is no checkpoint" in capsys.readouterr().err
    with tsql.connect() as session:
        job = session.sql((tmp_path / "q.sql").read_text()).start(checkpoint=state, interval=0.001)
        assert wait_until(lambda: job.progress().rows_in == 0)
        job.stop()
        again = session.sql(SUM).start(checkpoint=state)
        assert main(["check", "--checkpoint", state, str(tmp_path / "q.sql")]) == 0  # while it runs
        again.stop()
    out = capsys.readouterr().out
    assert out and all(line.startswith("kept: ") for line in out.splitlines())
    assert main(["check", "--checkpoint", state, str(tmp_path / "other.sql")]) == 1
    out = capsys.readouterr().out
    assert "dropped: " in out and "refused: " in out


def test_killed_before_the_first_epoch_of_a_changed_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is still that of the earlier query: what a job is belongs to its epochs."""
    begun(TWO, tmp_path)
    with session_of() as session:
        kept = session.sql(TURNED).compare_checkpoint(tmp_path / "state").kept
        assert any(new != old for new, old in kept.items())  # names mean other steps
    with monkeypatch.context() as patched, session_of() as session:
        patched.setattr(JobRun, "run", lambda run: run.close())
        session.sql(TURNED).start(tmp_path / "out", checkpoint=tmp_path / "state").wait(60)
    assert_same_rows(to_rows(finish(TURNED, tmp_path)), to_rows(ask_engine(TWO, {"events": TABLE})))


def cut_short(path: Path, choose: random.Random) -> None:
    os.truncate(path, choose.randrange(max(1, path.stat().st_size)))


def garble(path: Path, choose: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
    path.write_bytes(data)


def remove(path: Path, choose: random.Random) -> None:
    path.unlink()


@pytest.mark.parametrize("damage", [cut_short, garble, remove])
def test_a_damaged_checkpoint(damage: Callable[[Path, random.Random], None], tmp_path: Path) -> None:
    """One error, or the right answer; never a wrong one."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    choose = random.Random(seed)
    begun(SUM, tmp_path / "whole")
    wanted = to_rows(ask_engine(SUM, {"events": TABLE}))
    state = tmp_path / "whole" / "state"
    files = sorted(path.relative_to(state) for path in state.rglob("*") if path.is_file() and path.name != "lock")
    refused = 0
    for place, name in enumerate([*files, *files]):
        folder = tmp_path / str(place)
        shutil.copytree(tmp_path / "whole", folder)
        damage(folder / "state" / name, choose)
        try:
            found = finish(SUM, folder)
        except TsqlError as error:
            assert isinstance(error, SourceError | PlanError) and "checkpoint" in str(error), (seed, name, error)
            refused += 1
            continue
        assert_same_rows(to_rows(found), wanted)
    assert refused >= 2


def test_a_checkpoint_of_earlier_results(tmp_path: Path) -> None:
    """It would give rows a second time."""
    begun(SUM, tmp_path)
    shutil.copytree(tmp_path / "state", tmp_path / "kept")
    finish(SUM, tmp_path)
    shutil.rmtree(tmp_path / "state")
    shutil.move(tmp_path / "kept", tmp_path / "state")
    with pytest.raises(SourceError, match="the checkpoint is at epoch"):
        finish(SUM, tmp_path)


def test_a_table_with_later_epochs(tmp_path: Path) -> None:
    with tsql.connect(tmp_path / "db") as session:
        scripted(session, "events", {"p": PIECES}, SCHEMA, "ts", watermark="ts - INTERVAL '6 seconds'")
        session.sql("CREATE TABLE results (window_start TIMESTAMP, s BIGINT)")
        session.sql(SUM).start("results", checkpoint=tmp_path / "state", interval=0.001).wait(60)
        rows = session.table("results").arrow().num_rows
        shutil.copytree(tmp_path / "state", tmp_path / "early")
        epochs = sorted((tmp_path / "early" / "epochs").iterdir())
        epochs[-1].unlink()
        if session.sql("SELECT epoch FROM tsql_epochs").fetchall()[0][0] == int(epochs[-1].stem):
            with pytest.raises(SourceError, match="table results has the results of job"):
                session.sql(SUM).start("results", checkpoint=tmp_path / "early")
        assert session.table("results").arrow().num_rows == rows


def test_one_job_at_a_time(tmp_path: Path) -> None:
    with session_of(ends=False) as session:
        with session.sql(SUM).start(checkpoint=tmp_path / "state"):
            with pytest.raises(SourceError, match="is used by another job"):
                session.sql(SUM).start(checkpoint=tmp_path / "state")
        # It is free again, also while a child of a fork has the file open.
        checkpoint = Checkpoint(tmp_path / "state")
        inherited = os.dup(checkpoint._lock)
        checkpoint.close()
        with session.sql(SUM).start(checkpoint=tmp_path / "state"):
            pass
        os.close(inherited)


def test_a_checkpoint_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with session_of() as session:
        with pytest.raises(SourceError, match="the checkpoint .*file/state cannot be opened: Not a directory"):
            session.sql(SUM).start(checkpoint=tmp_path / "file" / "state")


def test_a_checkpoint_that_cannot_be_written_any_more(tmp_path: Path) -> None:
    with session_of(ends=False) as session:
        job = session.sql(SUM).start(checkpoint=tmp_path / "state", interval=0.001)
        assert wait_until(lambda: job.progress().rows_in == ROWS)
        job.stop()
        job = session.sql(SUM).start(checkpoint=tmp_path / "state", interval=0.001)
        os.rename(tmp_path / "state", tmp_path / "gone")
        with pytest.raises(SourceError, match="the checkpoint .* cannot be written"):
            job.stop()
        assert job.state == "failed"
