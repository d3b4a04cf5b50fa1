"""What 100 and 1,000 executors would do with 1 and 100 TB: a simulation, and the driver's work measured.

python -m bench.scale [--executors 100,1000] [--data 1TB,100TB] simulates the queries of docs/scale.md.
python -m bench.scale --measure [--files 1000,10000] [--slots 400] times the driver's own work over that many files.
python -m bench.scale --launch measures what a task costs the driver, on a cluster of this machine."""

from __future__ import annotations

import argparse

from bench.scaling import cases, driver, launch
from bench.scaling.simulate import Cluster, run_job
from tsql.planner.physical.estimate import size

UNITS = {"TB": 1e12, "GB": 1e9, "MB": 1e6}


def data_bytes(text: str) -> float:
    """The number of bytes that a text such as 100TB names."""
    for unit, factor in UNITS.items():
        if text.upper().endswith(unit):
            return float(text[: -len(unit)]) * factor
    raise argparse.ArgumentTypeError(f"{text}: a size is a number with one of {', '.join(UNITS)}")


def seconds(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def simulated(executors: list[int], data: list[float]) -> list[str]:
    """The lines of the table of the page."""
    lines = [
        "| data | executors | query | tasks | time, s | driver, s | cores busy | blocks | block | shard | statuses |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for amount in data:
        for count in executors:
            cluster = Cluster(count)
            for name, stages_of in cases.QUERIES.items():
                stages, shuffles = stages_of(cluster, amount)
                ran = run_job(cluster, stages)
                total = sum(one.seconds for one in ran)
                busy = sum(one.core_s for one in ran) / (total * cluster.slots)
                moved = (
                    f"{shuffle.blocks / 1e6:.1f} M | {size(shuffle.block_bytes)} | {size(shuffle.shard_bytes)} | "
                    f"{size(shuffle.status_bytes)}"
                    if (shuffle := next(iter(shuffles), None))
                    else "| | |"
                )
                tasks = " + ".join(f"{stage.tasks:,}" for stage in stages)
                driven = sum(one.driver_s for one in ran)
                lines.append(
                    f"| {size(amount)} | {count:,} | {name} | {tasks} | {seconds(total)} | {seconds(driven)} | "
                    f"{busy:.0%} | {moved} |"
                )
    return lines


def measured(files: list[int], slots: int) -> list[str]:
    """What the driver does, per number of files."""
    lines = []
    for count in files:
        clock, sent = driver.measure(count, slots)
        lines += [
            f"{count:,} files of {driver.GROUPS} row groups, {slots:,} slots",
            "",
            "| step | s | memory |",
            "|---|---|---|",
        ]
        lines += [
            f"| {name} | {clock.seconds[name]:.3f} | {size(max(0, clock.bytes[name]))} |" for name in clock.seconds
        ]
        lines += ["", ", ".join(f"{name}: {value:,}" for name, value in sent.items()), ""]
    for splits, tasks in ((100_000, 1000), (100_000, 10_000), (1_000_000, 10_000)):
        lines.append(f"deal {splits:,} splits to {tasks:,} tasks: {driver.deal(splits, tasks):.2f} s")
    return lines


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__.partition("\n")[0])
    parser.add_argument("--executors", default="100,1000", help="numbers of executors")
    parser.add_argument("--data", default="1TB,100TB", help="decoded bytes that queries read")
    parser.add_argument("--measure", action="store_true", help="time the driver's own work instead")
    parser.add_argument("--files", default="1000,10000", help="numbers of files for --measure")
    parser.add_argument("--slots", type=int, default=400, help="tasks at a time for --measure")
    parser.add_argument("--launch", action="store_true", help="measure what a task costs the driver")
    given = parser.parse_args(arguments)
    if given.launch:
        lines = [f"{name}: {value:.0f}" for name, value in launch.measure().items()]
    elif given.measure:
        lines = measured([int(count) for count in given.files.split(",")], given.slots)
    else:
        lines = simulated(
            [int(count) for count in given.executors.split(",")], list(map(data_bytes, given.data.split(",")))
        )
    print("\n".join(lines))


if __name__ == "__main__":
    main()
