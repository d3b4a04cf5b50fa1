"""How often the bounds of progressive queries hold, over seeds, kinds of data and values.

    python -m bench.coverage [--seeds 500] [--rows 2048000] [--only TEXT] [--values NAMES] [--error 0.02]
    [--processes N] [--json FILE] [--markdown FILE]

Each seed reads the same table in another order. A value counts for coverage where it has bounds; how many have is
shown beside it. The exact results are DuckDB's. `docs/progressive.md` holds the table made by it."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import tsql
from bench.snapshots.counts import Cell, Cells, count
from bench.snapshots.kinds import KINDS, UNITS, VALUES
from tsql.tpch.report import machine

NOMINAL, LEAST = 95, 94
"""The confidence of bounds by default, and the least coverage that is not marked; in percent."""
LOOK_VALUES = 100
"""A look counts as the worst one if so many values have bounds there."""
PARTS = 2
"""The seeds of a kind are counted in so many parts for each process."""
COLUMNS = ("data", "value", "bounded", "looks", "worst", "run", "stop", "close", "stopped", "read", "± at 10 %")
"""Short, since lines of pages are. bounded: values of groups with bounds, over all looks. looks: how many of these hold
the exact result, and worst: at the worst look. run: at every look of a run. stop: where a run has stopped by itself,
and close: as close to the exact result as was asked. stopped: values in runs that did so before the end, and read: how
much of the input at the median. The last: half the width of bounds as a share of the value, at a tenth of the input."""


def counted(
    names: Iterable[str], values: tuple[str, ...], rows: int, seeds: int, error: float, processes: int
) -> Iterator[tuple[str, Cells, float]]:
    """The cells of each kind, as they are counted, and the processor seconds that they took."""
    size = max(1, -(-seeds // (processes * PARTS)))
    parts = [range(first, min(seeds, first + size)) for first in range(0, seeds, size)]
    whole: dict[str, Cells] = {name: {} for name in names}
    left, spent = dict.fromkeys(whole, len(parts)), dict.fromkeys(whole, 0.0)
    # A process that is forked would share its parent's threads and locks in a state that nobody knows.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        tasks = {pool.submit(count_part, name, values, rows, part, error): name for name in whole for part in parts}
        try:
            for task in as_completed(tasks):
                name = tasks[task]
                cells, seconds = task.result()
                _add(whole[name], cells)
                left[name], spent[name] = left[name] - 1, spent[name] + seconds
                if not left[name]:
                    yield name, whole[name], spent[name]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def count_part(name: str, values: tuple[str, ...], rows: int, seeds: range, error: float) -> tuple[Cells, float]:
    """The counts of some seeds, in a process of the pool."""
    begun = time.process_time()
    return count(KINDS[name], rows, seeds, error, values), time.process_time() - begun


def _add(whole: Cells, more: Cells) -> None:
    for key, cell in more.items():
        whole.setdefault(key, Cell()).add(cell)


def line(name: str, value: str, cell: Cell) -> list[str]:
    """A line of the table. What is below `LEAST` is bold."""
    bounded = cell.bounded.sum()
    if cell.note or not bounded:
        return [name, value, cell.note or "none yet", *[""] * (len(COLUMNS) - 3)]
    looks = cell.bounded >= min(LOOK_VALUES, cell.bounded.max())
    return [
        name,
        value,
        _percent(bounded, cell.shown.sum()),
        _marked(cell.held.sum(), bounded),
        _percent_marked(float((cell.held[looks] / cell.bounded[looks]).min())),
        _marked(cell.runs_held, cell.runs),
        _marked(cell.stopped_held, cell.stopped),
        _marked(cell.stopped_close, cell.stopped),
        _percent(cell.stopped, cell.asked),
        f"{100 * np.median(cell.progress):.3g} %" if cell.progress else "",
        f"{100 * np.median(cell.errors):.2g} %" if cell.errors else "",
    ]


def _percent(some: float, whole: float) -> str:
    return f"{100 * some / whole:.0f} %" if whole else ""


def _marked(some: int, whole: int) -> str:
    return _percent_marked(some / whole) if whole else ""


def _percent_marked(share: float) -> str:
    shown = f"{100 * share:.1f}"
    return shown if 100 * share >= LEAST else f"**{shown}**"


def table(cells: Cells) -> str:
    """The cells as a table in Markdown."""
    lines = [line(name, value, cell) for (name, value), cell in cells.items()]
    return "\n".join(f"| {' | '.join(one)} |" for one in (COLUMNS, ["---"] * len(COLUMNS), *lines))


def summary(cells: Cells) -> str:
    """How many cells are below `LEAST`."""
    told = []
    for place, title in enumerate(COLUMNS[3:7], 3):
        shown = [one[place] for key, cell in cells.items() if (one := line(*key, cell))[place]]
        told.append(f"{title} {sum(text.startswith('**') for text in shown)} of {len(shown)}")
    return f"Cells below {LEAST} %: {', '.join(told)}."


def facts(options: argparse.Namespace) -> str:
    one = 100 * (NOMINAL / 100 * (1 - NOMINAL / 100) / options.seeds) ** 0.5
    told = {
        **machine(),
        "tsql": tsql.__version__,
        "rows": f"{options.rows:,} in some {UNITS:,} units",
        "seeds": f"{options.seeds} (the standard error of a cell of one group at one look: {one:.1f} %)",
        "confidence": f"{NOMINAL} %",
        "UNTIL ERROR": f"{options.error:g}",
    }
    return textwrap.fill("; ".join(f"{name}: {value}" for name, value in told.items()), 120)


def _json(cells: Cells) -> list[dict[str, Any]]:
    return [
        {"data": name, "value": value, **{k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in found.items()}}
        for (name, value), cell in cells.items()
        for found in [asdict(cell)]
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark. The exit code is 0 even where bounds hold less often than they say: the table tells."""
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(prog="python -m bench.coverage", description="Coverage of progressive bounds")
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--rows", type=int, default=2_048_000, help="rows of a table (default: 1,000 units of 2,048)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the kinds of data whose name has this text")
    parser.add_argument("--values", default=",".join(VALUES), metavar="NAMES", help="only these values (default: all)")
    parser.add_argument("--error", type=float, default=0.02, help="the error at which runs stop (default: 0.02)")
    parser.add_argument("--processes", type=int, default=cores, help=f"(default: {cores}, one for each core)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all counts as JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table")
    options = parser.parse_args(arguments)
    if min(options.seeds, options.processes) < 1 or options.rows < UNITS or not 0 < options.error < 1:
        parser.error(f"--seeds and --processes are at least 1, --rows at least {UNITS}, --error between 0 and 1")
    values = tuple(options.values.split(","))
    if not set(values) <= VALUES.keys():
        parser.error(f"values are {', '.join(VALUES)}")
    names = [name for name in KINDS if options.only.lower() in name]
    head, found = facts(options), {}
    for name, cells, seconds in counted(names, values, options.rows, options.seeds, options.error, options.processes):
        found[name] = cells
        print(f"{name}: {seconds:.0f} s of a processor; {summary(cells)}", file=sys.stderr, flush=True)
    whole: Cells = {key: cell for name in names for key, cell in found[name].items()}
    text = "\n\n".join([head, table(whole), summary(whole)]) + "\n"
    print(text, end="")
    if options.markdown is not None:
        options.markdown.write_text(text, encoding="utf-8")
    if options.json is not None:
        options.json.write_text(json.dumps({"facts": head, "cells": _json(whole)}) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
