"""Primitives in the files of a home before a pool asks for them: for tests that are not about creation.

The pools of such tests start no compiler, and all processes of a run share the kernels.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import poolrt
from poolrt.cachestore import CacheStore
from poolrt.graph.lower import lower
from poolrt.graph.wire_parser import parse
from poolrt.workers.engines.target import cpu_target
from tests.workers.compiled import creator


def create(home: str | Path, *graphs: poolrt.Graph, threads: int = 1) -> None:
    """Create the primitives of graphs for the processor, for workers of so many threads."""
    made = creator()
    with CacheStore.connect(f"unix://{home}/none.sock", home=str(home)) as store:
        for graph in graphs:
            lowered = lower(parse(graph.to_wire()[0]), {"cpu": cpu_target()}, threads)
            for pd, key in zip(lowered.primitives, lowered.keys, strict=True):
                store.get_or_create(key, partial(made.create, pd))
