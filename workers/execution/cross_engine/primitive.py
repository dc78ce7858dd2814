"""Reorders between engines as users hold them: transferred on a stream of one engine, computed on one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ...desc import Arg
from ...implementations.primitive_desc import PrimitiveDesc
from ...streams.stream import Stream
from ..arguments import check_argument, describe_arguments
from ..native_execution import CpuExecution
from ..primitive import Execution, Primitive
from .engine_pair import EnginePair
from .execution import DeviceCrossEngineExecution, HostCrossEngineExecution

if TYPE_CHECKING:
    from ...primitives.cache import PrimitiveCache
    from ..memory import Memory
    from ..opencl_execution import OpenClExecution


class CrossEnginePrimitive(Primitive):
    """A created reorder between engines, with its resources on the engine that computes.

    It is executed on streams of the OpenCL engine, of src's where there are two, and what the CPU computes on streams on a
    CPU too. Nobody waits who executes: memories belong to the stream until `Stream.wait`, and what another stream does
    with them must have been waited for. On a CPU the stream's threadpool runs copies and kernels; a stream on OpenCL has a
    thread of its own for what the CPU computes and for what goes to another OpenCL engine.
    """

    def __init__(self, pd: PrimitiveDesc, engines: EnginePair, cache: PrimitiveCache | None = None) -> None:
        """Get what ``pd`` describes and realize it, as `Primitive` does."""
        super().__init__(pd, engines.compute_engine(pd.target), cache)
        self.engine = engines.stream_engine
        self._engines = engines
        self._places = {
            arg: (desc, engines.engine_of(arg, self.resources.engine)) for arg, desc in describe_arguments(pd).items()
        }

    def execute(self, stream: Stream, args: Mapping[int, Memory] | Mapping[Arg, Memory]) -> None:
        """Compute on memories given by argument, those of attributes on the OpenCL engine: see `Primitive.execute`."""
        self._engines.check_stream(stream, self.resources.engine.kind)
        given: Mapping[Any, Memory] = args
        places = self._places.items()
        self._run(stream, {a: check_argument(a, given.get(a), desc, engine) for a, (desc, engine) in places})

    def _realized(self) -> Execution:
        inner, entry = super()._realized(), self._cached.entry
        if isinstance(inner, CpuExecution):
            return HostCrossEngineExecution(inner, entry)
        return DeviceCrossEngineExecution(cast("OpenClExecution", inner), entry, self.resources.engine)
