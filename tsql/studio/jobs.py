"""The live queries that run, as the page shows them: those of this user's processes, this one among them."""

from __future__ import annotations

from typing import Any

from tsql.cli.jobs import progress
from tsql.cli.live import watermark_text
from tsql.job_status import running

MOST_JOBS = 50


def entries() -> list[dict[str, Any]]:
    """Name, rates, watermarks, late rows and state of each job."""
    found = []
    for job in running()[:MOST_JOBS]:
        known = progress(job)
        found.append(
            {
                "name": known.name,
                "seconds": known.seconds,
                "rows_in": known.rows_in,
                "rate_in": known.rate_in,
                "rows_out": known.rows_out,
                "late": known.late,
                "held_rows": known.held_rows,
                "held_bytes": known.held_bytes,
                "streams": [
                    {"name": one.name, "watermark": watermark_text(one.watermark_us), "behind": one.behind}
                    for one in known.streams
                ],
            }
        )
    return found
