"""A job is killed at each call that changes files and at each of its steps, and resumed: every row is there, once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.postgres import Server
from tests.live.sinks.failures import Disk, Killed, SyncedDisk
from tests.live.sinks.jobs import Checkpoint, batches_of, expected, ordered, output, run
from tests.live.sinks.targets import TARGETS, Target
from tsql.kernels.expr.errors import TsqlError

EPOCHS = 5


@pytest.fixture(params=sorted(name for name, made in TARGETS.items() if made.has_files))
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def killed_at(
    target: Target, checkpoint: Checkpoint, place: int | None, patch: pytest.MonkeyPatch, is_ahead: bool
) -> Disk:
    """Run the job until its n-th step. What the dead process held is freed, as the system does it."""
    disk = Disk(place)
    with patch.context() as during:
        disk.use(during)
        disk.server(during)
        try:
            run(target.sink(), checkpoint, EPOCHS, output(), disk.step, is_ahead)
        except Killed:
            pass
        disk.revive()
    return disk


def check_whole(target: Target, checkpoint: Checkpoint) -> None:
    epoch, _ = checkpoint.get()
    if target.is_whole:
        assert ordered(target.rows()) in (expected(epoch), expected(max(epoch - 1, 0)))


def places(seed: int, steps: int) -> Iterator[tuple[int, int]]:
    """Every place of the first kill, each with some place of a second one, which mostly hits the recovery."""
    made = random.Random(seed)
    for place in range(1, steps + 1):
        yield place, made.choice((1, 2, 3, 4, 5, 6, 8, 10, 15, 20))


@pytest.mark.parametrize("is_ahead", [False, True])
def test_kill_at_each_call(kind: str, is_ahead: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    (tmp_path / "whole").mkdir()
    steps = killed_at(TARGETS[kind](tmp_path / "whole"), Checkpoint(), None, monkeypatch, is_ahead).calls
    assert len(steps) > 20
    for first, second in places(seed, len(steps)):
        folder = tmp_path / str(first)
        folder.mkdir()
        target, checkpoint = TARGETS[kind](folder), Checkpoint()
        where = f"killed at {first} ({steps[first - 1]}), then at {second}"
        for place in (first, second):
            killed_at(target, checkpoint, place, monkeypatch, is_ahead)
            check_whole(target, checkpoint)
        killed_at(target, checkpoint, None, monkeypatch, is_ahead)
        assert ordered(target.rows()) == expected(EPOCHS), where


def test_no_space_at_each_call(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that fails ends the job with one error that names the target; the job is resumed when there is space."""
    place = 0
    while True:
        place += 1
        folder = tmp_path / str(place)
        folder.mkdir()
        target, checkpoint = TARGETS[kind](folder), Checkpoint()
        disk = Disk(place, OSError)
        sink = target.sink()
        with monkeypatch.context() as during:
            disk.use(during)
            try:
                run(sink, checkpoint, EPOCHS, output())
                return
            except TsqlError as error:
                assert "No space left on device" in error.message and str(folder) in error.message, error
            finally:
                disk.revive()
        sink.close()
        killed_at(target, checkpoint, None, monkeypatch, False)
        assert ordered(target.rows()) == expected(EPOCHS), place


@pytest.mark.parametrize("is_ahead", [False, True])
def test_kill_at_each_statement(
    postgres_server: Server, is_ahead: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")

    def target(name: object) -> Target:
        return TARGETS["postgres"](tmp_path / str(name), postgres_server.url())

    steps = killed_at(target("whole"), Checkpoint(), None, monkeypatch, is_ahead).calls
    assert steps.count("execute") > 30
    for first, second in places(seed, len(steps)):
        found, checkpoint = target(first), Checkpoint()
        for place in (first, second):
            killed_at(found, checkpoint, place, monkeypatch, is_ahead)
            check_whole(found, checkpoint)
        killed_at(found, checkpoint, None, monkeypatch, is_ahead)
        assert ordered(found.rows()) == expected(EPOCHS), f"killed at {first} ({steps[first - 1]}), then at {second}"


@pytest.mark.parametrize("has_begun", [False, True])
def test_what_is_durable(kind: str, has_begun: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a checkpoint is made, and behind a commit, a crash of the machine would take nothing away."""
    disk, target, checkpoint = SyncedDisk(), TARGETS[kind](tmp_path), Checkpoint()

    def step(name: str) -> None:
        if name != "behind the checkpoint":
            assert disk.unsynced == set(), name

    disk.use(monkeypatch)
    if has_begun:
        sink = target.sink()
        sink.open(output())
        sink.recover(0, None)
        for rows in batches_of(1):
            sink.write(rows)
        checkpoint.put(1, sink.prepare(1))
        sink.close()
    run(target.sink(), checkpoint, EPOCHS, output(), step)
    assert ordered(target.rows()) == expected(EPOCHS)
