"""What primitive descriptors offer for each cell of the table on each engine kind."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Final

from poolrt.workers.desc import PrimitiveAttr
from poolrt.workers.engines.isa import ISA_LEVELS, extensions_of
from poolrt.workers.engines.target import Target
from poolrt.workers.implementations.primitive_desc import implementations, primitive_descs

from .problems import Cell, problems

_LEVEL: Final = list(ISA_LEVELS)[-1]
#: Engine kind -> the target that the page is made for: all that a processor can have, and PoCL on a CPU. No device is asked.
TARGETS: Final = {
    "cpu": Target("cpu", "native", (("isa", _LEVEL), ("extensions", " ".join(extensions_of(_LEVEL))))),
    "opencl": Target(
        "opencl",
        "opencl",
        (("fp64", "True"), ("platform", "Portable Computing Language"), ("type", "CPU"), ("vector_width", "8")),
    ),
}


@lru_cache(maxsize=4096)
def counted(cell: Cell, target: Target) -> tuple[tuple[str, int], ...]:
    """Return the names of all implementations that take problems of a cell, best first, and how many each takes."""
    taken = Counter(pd.impl_name() for op in problems(cell) for pd in primitive_descs(op, PrimitiveAttr(), target))
    listed = [implementation.name for implementation in implementations(cell.kind, target.engine_kind)]
    return tuple((name, taken[name]) for name in listed if name in taken)


def offered(cell: Cell, target: Target) -> tuple[str, ...]:
    """Return the names of all implementations that take a problem of a cell, best first."""
    return tuple(name for name, _ in counted(cell, target))
