"""A live query that is killed and goes on: `python examples/live_clicks.py`.

One process writes clicks into a folder, file after file, some of them out of order and some too late. Another one runs
the query below over this folder and writes the windows that are complete into a folder of Parquet files. It is killed
in the middle, as by a crash of the machine, and started again. In the end the folder has each window once, and the same
query over the finished files gives the same rows."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tsql

FILES, ROWS = 40, 500
START = dt.datetime(2026, 3, 1, 12)
PAUSE = 0.1

STREAM = """
CREATE STREAM clicks (id BIGINT, page VARCHAR, amount DECIMAL(10, 2), ts TIMESTAMP,
  WATERMARK FOR ts AS ts - INTERVAL '20 seconds' ON LATE DROP)
WITH (connector = 'json', path = '{folder}/clicks/*.json', follow = true,
      poll_interval = '50 milliseconds', settle = '50 milliseconds')
"""

QUERY = """
SELECT window_start, page, count(*) AS clicks, sum(amount) AS amount
FROM TUMBLE(clicks, ts, INTERVAL '1 minute')
GROUP BY window_start, page
EMIT FINAL
"""


def write_clicks(folder: Path, pause: float = PAUSE) -> None:
    """Files of clicks, a minute and a half each; rows come up to 15 seconds out of order. A file appears once it is
    whole."""
    chosen = random.Random(7)
    (folder / "clicks").mkdir(exist_ok=True)
    for number in range(FILES):
        lines = []
        for row in range(ROWS):
            place = number * ROWS + row
            moment = START + dt.timedelta(seconds=place * 0.18 - chosen.random() * 15)
            click = {
                "id": place,
                "page": chosen.choice(["home", "search", "shoes", "hats"]),
                "amount": round(chosen.expovariate(0.1), 2),
                "ts": moment.isoformat(sep=" "),
            }
            lines.append(json.dumps(click))
        staged = folder / "clicks" / f".{number:04d}.tmp"
        staged.write_text("\n".join(lines) + "\n")
        os.replace(staged, folder / "clicks" / f"{number:04d}.json")
        time.sleep(pause)


def run_job(folder: Path) -> None:
    """The live query: from the beginning, or from where the last process was."""
    with tsql.connect() as db:
        db.execute(STREAM.format(folder=folder))
        with db.sql(QUERY).start(sink=folder / "windows", checkpoint=folder / "state", interval=0.2) as job:
            while not job.is_over:
                found = job.progress()
                (folder / "progress.json").write_text(json.dumps({"rows": found.rows_in, "epoch": found.committed}))
                if (folder / "enough").exists() and found.rows_in == FILES * ROWS:
                    job.stop(drain=True)  # the folder is complete: the last windows are final, too
                time.sleep(0.02)


def start(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, "job", str(folder)])


def told(folder: Path) -> dict[str, int]:
    try:
        return json.loads((folder / "progress.json").read_text())
    except (OSError, ValueError):
        return {"rows": 0, "epoch": 0}


def wait_for(folder: Path, rows: int, epoch: int) -> dict[str, int]:
    """Wait until so many rows have been read and so many epochs have been given."""
    deadline = time.monotonic() + 60
    while (found := told(folder))["rows"] < rows or found["epoch"] < epoch:
        if time.monotonic() > deadline:
            raise SystemExit("the live query does not read its stream")
        time.sleep(0.02)
    return found


def main(folder: Path) -> None:
    print(f"the query:\n{QUERY}")
    writer = subprocess.Popen([sys.executable, __file__, "clicks", str(folder)])
    try:
        for attempt, rows in enumerate((FILES * ROWS // 4, FILES * ROWS // 2), 1):
            job = start(folder)
            found = wait_for(folder, rows, 2 * attempt)
            job.send_signal(signal.SIGKILL)
            job.wait()
            print(f"process {attempt} has read {found['rows']:,} clicks and given {found['epoch']} epochs. Killed.")
        job = start(folder)
        writer.wait()
        (folder / "enough").touch()
        job.wait()
    finally:
        writer.kill()
    with tsql.connect() as db:
        live = db.sql(f"FROM '{folder}/windows/*.parquet' ORDER BY window_start, page")
        live.show(max_rows=6)
        db.execute(STREAM.format(folder=folder))
        bounded = db.sql(f"{QUERY.replace('EMIT FINAL', '')} ORDER BY window_start, page").fetchall()
        same = live.fetchall() == bounded
        print(f"process 3 has finished: {len(bounded):,} windows, {'each once' if same else 'NOT those of the files'}")
        if not same:
            raise SystemExit(1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["clicks"]:
        write_clicks(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["job"]:
        run_job(Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
