"""How many cores there are. The system is asked once: it takes 50 microseconds to tell, and every query wants to
know."""

from __future__ import annotations

import os

CORES = os.cpu_count() or 1
