"""Kills the jobs of the cases at random moments, and compares what they leave with what an oracle says."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.live.kills.cases import CASES, FILE_ROWS, Input, difference, found, late_rows
from tests.live.kills.worker import JobWorker
from tests.patience import wait_until

GROW_SECONDS = 0.1
AT_WORK = 0.8
"""So many kills in one are made after a job has ended an epoch; the others when it has just begun."""
MOST_SECONDS = 10.0


def campaign(
    kills: int, seed: int, folder: Path, url: Callable[[], str], names: Sequence[str] = tuple(CASES), tell: bool = False
) -> list[str]:
    """What is wrong. url: makes an address of an empty PostgreSQL database. Each case gets its share of the kills."""
    wrong = []
    with JobWorker() as worker:
        for place, name in enumerate(names):
            share = kills // len(names) + (place < kills % len(names))
            why = _case(worker, name, share, seed, folder / name, url() if name == "postgres" else "")
            if tell:
                print(f"{name}: {share} kills: {why or 'fine'}", flush=True)
            if why is not None:
                wrong.append(f"{name}: {why}")
    return wrong


def _case(worker: JobWorker, name: str, kills: int, seed: int, folder: Path, url: str) -> str | None:
    case, choose = CASES[name], random.Random(f"{name} {seed}")
    growing = Input(folder, case.connector, seed)
    about = {"case": name, "folder": str(folder), "url": url, "rows": 0}
    with _Growing(growing):
        for turn in range(kills):
            threads, interval = choose.choice((1, 2, 3)), choose.choice((0.005, 0.05, 0.2))
            epoch = last_epoch(folder)
            process = worker.start({**about, "threads": threads, "interval": interval})
            if choose.random() < AT_WORK:
                wait_until(partial(_is_behind, folder, epoch), MOST_SECONDS)
            time.sleep(choose.choice((0.01, 0.1, 0.3)) * choose.random())
            ended = worker.kill(process)
            if ended != -signal.SIGKILL:
                return f"the job ended by itself with {ended} in turn {turn}"
    growing.grow()
    rows = growing.files * FILE_ROWS
    worker.start({**about, "threads": 2, "interval": 0.2, "rows": rows})
    if (code := worker.ended()) != 0:
        return f"the last job ended with {code}"
    assert last_epoch(folder) > kills / 2
    wrong = difference(growing.answer(case), found(case, folder, url))
    if wrong is None and case.has_late:
        wrong = difference(growing.late(), late_rows(folder))
    return wrong


def last_epoch(folder: Path) -> int:
    """The last epoch of the checkpoint."""
    return max((int(path.stem) for path in (folder / "state" / "epochs").glob("*.json")), default=0)


def _is_behind(folder: Path, epoch: int) -> bool:
    return last_epoch(folder) > epoch


class _Growing:
    """Writes files until it is left."""

    def __init__(self, growing: Input):
        self._growing = growing
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stopped.is_set():
            self._growing.grow()
            self._stopped.wait(GROW_SECONDS)
