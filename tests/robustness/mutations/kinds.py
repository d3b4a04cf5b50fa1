"""All kinds of mutated input, by name."""

from __future__ import annotations

from tests.robustness.mutations.cache import CacheEntries
from tests.robustness.mutations.databases import Databases
from tests.robustness.mutations.files import Files
from tests.robustness.mutations.kind import Kind
from tests.robustness.mutations.objects import Objects
from tests.robustness.mutations.plans import Plans
from tests.robustness.mutations.sql import Queries

KINDS: dict[str, type[Kind]] = {kind.name: kind for kind in (Queries, Files, Databases, CacheEntries, Objects, Plans)}
