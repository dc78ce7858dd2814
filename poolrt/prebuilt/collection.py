"""The kernels that graphs need on each kind of processor, and the primitives to create that contain them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from poolrt.cachestore import Key
from poolrt.workers.desc import PrimitiveAttr
from poolrt.workers.desc.operations.array_call import ArrayCall
from poolrt.workers.desc.operations.ring_ends import RingEnds
from poolrt.workers.engines.isa import extensions_of
from poolrt.workers.engines.target import Target
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.primitives.derivation import identities_of
from poolrt.workers.primitives.key import primitive_key
from poolrt.workers.primitives.prebuilt import can_be_prebuilt, part_key

from ..graph.lower import lower
from ..graph.packed import pack_graph, unpack_graph
from ..graph.wire_parser import parse

if TYPE_CHECKING:
    from poolrt.workers.implementations.primitive_desc import PrimitiveDesc

    from ..graph.builder import Graph

#: ISA levels that kernels are prebuilt for: those of processors since 2013 and 2017.
LEVELS: Final = ("x86-64-v3", "x86-64-v4")
#: The same with extensions, of processors since 2021, 2019, 2020 and 2023. The last have AMX for bf16 and for bytes, and no
#: processor one alone.
_EXTENDED: Final = (
    (LEVELS[0], extensions_of(LEVELS[0])),
    (LEVELS[1], ("avx512_vnni",)),
    (LEVELS[1], ("avx512_vnni", "avx512_bf16")),
    (LEVELS[1], extensions_of(LEVELS[1])),
)
#: Threads of a worker. Only whether there are several decides which kernels it needs.
_THREADS: Final = (1, 2)


def usual_targets() -> Iterator[Target]:
    """Yield the targets: each level, also with extensions: processors with some of the last level have those before them."""
    for level in LEVELS:
        yield Target("cpu", "native", (("isa", level),))
    for level, chosen in _EXTENDED:
        yield Target("cpu", "native", (("isa", level), ("extensions", " ".join(chosen))))


class Collection:
    """The kernels of the graphs that were added, for some targets, each with a primitive that contains it."""

    def __init__(self, targets: Iterable[Target]) -> None:
        self._targets = tuple(targets)
        self._seen: set[Key] = set()
        #: Key of a kernel -> a primitive with it, and its number among the primitive's kernels.
        self.kernels: dict[Key, tuple[PrimitiveDesc, int]] = {}

    def add(self, graph: Graph) -> None:
        """Add the kernels of a graph, those that send its runs to workers, and that of small products. Raises LoweringError."""
        packed = pack_graph(graph.to_wire()[0])
        for target in self._targets:
            for op in (RingEnds(), ArrayCall()):
                self._add_primitive(primitive_desc(op, PrimitiveAttr(), target))
            for threads in _THREADS:
                for pd in lower(parse(unpack_graph(packed)), {"cpu": target}, threads).primitives:
                    self._add_primitive(pd)

    def _add_primitive(self, pd: PrimitiveDesc) -> None:
        key = primitive_key(pd)
        if key in self._seen or not can_be_prebuilt(pd):
            return
        self._seen.add(key)
        for number, identity in enumerate(identities_of(pd, pd.program())):
            self.kernels.setdefault(part_key(identity), (pd, number))
