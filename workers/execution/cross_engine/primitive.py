"""Cross-engine reorders as users hold them: executed on a stream of one engine, computed on either."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ...desc import Arg, MemoryDesc
from ...engines.engine import Engine
from ...implementations.primitive_desc import PrimitiveDesc
from ...streams.stream import Stream
from ..arguments import check_argument, describe_arguments
from ..native_execution import CpuExecution
from ..primitive import Execution, Primitive
from .engine_pair import EnginePair
from .execution import DeviceCrossEngineExecution, HostCrossEngineExecution

if TYPE_CHECKING:
    from ...primitives.provider import PrimitiveProvider
    from ..memory import Memory
    from ..opencl_execution import OpenClExecution


class CrossEnginePrimitive(Primitive):
    """A created cross-engine reorder, with its resources on the engine that computes.

    It runs on streams of the OpenCL engine, of src's if there are two, and if the CPU computes, on a CPU's streams too.
    `execute` never blocks: memories belong to the stream until `Stream.wait`, and other streams must have finished with
    them. On a CPU's stream the threadpool runs copies and kernels. An OpenCL stream has a thread of its own for what the
    CPU computes and for copies to another OpenCL engine.
    """

    _engines: EnginePair
    _places: dict[int, tuple[MemoryDesc, Engine]]

    def __init__(self, pd: PrimitiveDesc, engines: EnginePair, cache: PrimitiveProvider | None = None) -> None:
        """Fetch the primitive that ``pd`` describes and realize it, as `Primitive` does."""
        super().__init__(pd, engines.compute_engine(pd.target), cache)
        compute = self.resources.engine
        places = {arg: (desc, engines.engine_of(arg, compute)) for arg, desc in describe_arguments(pd).items()}
        vars(self).update(engine=engines.stream_engine, _engines=engines, _places=places)

    def execute(self, stream: Stream, args: Mapping[int, Memory] | Mapping[Arg, Memory]) -> None:
        """Compute on memories under their arguments, those of attributes on the OpenCL engine: see `Primitive.execute`."""
        self._engines.check_stream(stream, self.resources.engine.kind)
        given: Mapping[Any, Memory] = args
        places = self._places.items()
        used = {a: check_argument(a, given.get(a), desc, engine) for a, (desc, engine) in places}
        execution = self._execution or self._keep_execution()
        execution.execute(stream, used, self._described() if self.engine.verbose.executes else None)

    def _realized(self) -> Execution:
        inner, entry = super()._realized(), self._cached.entry
        if isinstance(inner, CpuExecution):
            return HostCrossEngineExecution(inner, entry)
        return DeviceCrossEngineExecution(cast("OpenClExecution", inner), entry, self.resources.engine)
