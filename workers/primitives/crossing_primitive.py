"""Reorders between engines as users hold them: transferred on a stream of one engine, computed on one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ..desc import Arg
from ..memory.storage import Memory
from ..streams.stream import Stream
from .crossing_desc import Sides
from .crossing_execution import CrossingOnDevice, CrossingOnHost
from .execution import CpuExecution
from .primitive import Execution, Primitive, checked_argument
from .primitive_desc import PrimitiveDesc
from .primitive_desc_iface import arguments

if TYPE_CHECKING:
    from .cache import PrimitiveCache
    from .opencl_execution import OpenClExecution


class CrossingPrimitive(Primitive):
    """A created reorder between engines, with its resources on the engine that computes.

    It is executed on streams of the OpenCL engine, of src's where there are two. To and from a CPU it is enqueued, and
    the host's memory belongs to the stream until `Stream.wait`. To another OpenCL engine it has ended when ``execute``
    returns; what is computed there on the same memory must have ended before.
    """

    def __init__(self, pd: PrimitiveDesc, sides: Sides, cache: PrimitiveCache | None = None) -> None:
        """Get what ``pd`` describes and realize it, as `Primitive` does."""
        super().__init__(pd, sides.computing(pd.target), cache)
        self.engine = sides.streams
        self._places = {arg: (desc, sides.of(arg, self.resources.engine)) for arg, desc in arguments(pd).items()}

    def execute(self, stream: Stream, args: Mapping[int, Memory] | Mapping[Arg, Memory]) -> None:
        """Compute on memories given by argument, those of attributes on the stream's engine: see `Primitive.execute`."""
        if stream.engine is not self.engine:
            raise ValueError(f"stream: expect one on {self.engine}, got one on {stream.engine}")
        given: Mapping[Any, Memory] = args
        places = self._places.items()
        self._run(stream, {a: checked_argument(a, given.get(a), desc, engine) for a, (desc, engine) in places})

    def _realized(self) -> Execution:
        inner, entry = super()._realized(), self._cached.entry
        if isinstance(inner, CpuExecution):
            return CrossingOnHost(inner, entry, self.resources.engine)
        return CrossingOnDevice(cast("OpenClExecution", inner), entry, self.resources.engine)
