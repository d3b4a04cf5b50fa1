"""The arithmetic of bench/scaling: nothing is read twice, no core does two things at once, and more machines help."""

from __future__ import annotations

import pytest

from bench.scale import data_bytes, main
from bench.scaling.cases import QUERIES, Shuffle
from bench.scaling.simulate import Cluster, Ran, Stage, run_job, run_stage

SMALL = Cluster(3, cores=2)


def traced(stage: Stage, cluster: Cluster = SMALL) -> Ran:
    return run_stage(cluster, stage, trace=True)


def test_no_core_does_two_things_at_once() -> None:
    ran = traced(Stage("s", 50, stored_bytes=1e8, written_bytes=3e8, cpu_s=0.2))
    assert len(ran.busy) == 50 and {core for core, _, _ in ran.busy} == set(range(6))
    for core in range(6):
        mine = sorted((begin, end) for number, begin, end in ran.busy if number == core)
        assert all(end <= begin for (_, end), (begin, _) in zip(mine, mine[1:], strict=False))


def test_the_driver_starts_one_task_at_a_time() -> None:
    begins = sorted(begin for _, begin, _ in traced(Stage("s", 50, cpu_s=0.01)).busy)
    least = SMALL.launch_us * 1e-6
    assert all(later - sooner >= least * 0.999 for sooner, later in zip(begins, begins[1:], strict=False))


def test_a_disk_serves_one_task_after_the_other() -> None:
    ran = traced(Stage("s", 12, written_bytes=1e9))
    assert ran.seconds >= 4.0, "three disks write 12 GB at 1 GB/s"
    assert ran.seconds < 4.5


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("executors", [1, 7, 100])
def test_all_bytes_are_read_once(query: str, executors: int) -> None:
    cluster, data = Cluster(executors), 1e12
    stages, shuffles = QUERIES[query](cluster, data)
    first, *rest = run_job(cluster, stages)
    moved = sum(shuffle.moved for shuffle in shuffles)
    assert first.read_bytes == pytest.approx(data / 3)
    assert first.moved_bytes == pytest.approx(moved)
    assert sum(ran.read_bytes for ran in rest) == pytest.approx(moved)
    assert first.core_s >= sum(stage.cpu_s for stage in stages[:1]) * stages[0].tasks


@pytest.mark.parametrize("query", QUERIES)
def test_more_machines_are_never_much_slower(query: str) -> None:
    times = [
        sum(ran.seconds for ran in run_job(cluster, QUERIES[query](cluster, 1e13)[0]))
        for cluster in (Cluster(10), Cluster(100))
    ]
    assert times[1] < times[0]


def test_shuffles_count_blocks() -> None:
    shuffle = Shuffle(maps=4000, shards=400, moved=1.6e12)
    assert shuffle.blocks == 1_600_000 and shuffle.block_bytes == 1e6 and shuffle.shard_bytes == 4e9
    assert shuffle.block_bytes * shuffle.blocks == shuffle.moved
    assert Shuffle(1, 4000, 1.0).status_bytes < Shuffle(1, 2000, 1.0).status_bytes, "beyond 2,000 shards, bits"


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--executors", "2", "--data", "1GB"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(QUERIES) and all(line.count("|") == 12 for line in lines)
    main(["--measure", "--files", "3", "--slots", "2"])
    assert "tasks: 2" in capsys.readouterr().out
    assert data_bytes("1.5tb") == 1.5e12
