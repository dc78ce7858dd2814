"""Primitives as users hold them: fetched from the cache or created, realized on an engine, executed on streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from poolrt.cachestore.immutable import Immutable

from ..desc import Arg, MemoryDesc
from ..engines.engine import Engine
from ..implementations.primitive_desc import PrimitiveDesc
from ..primitives.cached_primitive import CachedPrimitive
from ..primitives.provider import PrimitiveProvider, primitive_provider
from ..streams.stream import Stream
from .arguments import check_argument, describe_arguments
from .native_binding import RealizedPrimitive
from .native_execution import CpuExecution
from .resource import Resource
from .resource_mapper import ResourceMapper

if TYPE_CHECKING:
    from .memory import Memory
    from .opencl_binding import RealizedOpenClPrimitive


class Execution(Protocol):
    """Executes a realized primitive from any number of threads at once."""

    def execute(self, stream: Stream, args: Mapping[int, Memory], text: str | None = None) -> None:
        """Execute on memories under their arguments, and write a verbose line if there is a text. Raises KernelFailed."""
        ...


class Primitive(Immutable):
    """A created primitive with its resources on one engine. Any number of threads and streams may execute it at once.

    Scratch memory belongs to the stream, or is an argument: see `PrimitiveAttr.scratchpad_mode`.
    `source` is where the primitive came from: ``memory`` (the cache of this process or the store's), ``derived`` (made of
    kernels that other primitives of this process have), ``files``, ``redis``, ``waited`` (another creator was at work), or
    ``created``. Immutable.
    """

    pd: PrimitiveDesc
    engine: Engine
    source: str
    #: The resources of this primitive and of those that it is made of.
    resources: ResourceMapper
    _cached: CachedPrimitive
    _execution: Execution | None
    _wanted: dict[int, MemoryDesc] | None
    _text: str | None

    def __init__(self, pd: PrimitiveDesc, engine: Engine, cache: PrimitiveProvider | None = None) -> None:
        """Fetch the primitive that ``pd`` describes from a cache, by default that of the process; realize it on an engine.

        A primitive from memory is realized by its first execution, so that a hit costs no more than finding it, any other
        one now. Raises TypeError for what is no descriptor or no engine, ValueError for an engine of another target than the
        descriptor's, CreationFailed with the compiler's type, message and log, and what realizing binaries raises.
        """
        try:
            is_served = engine.target.serves(pd.target)
        except AttributeError:
            _refuse_other_type("pd", pd, PrimitiveDesc)
            _refuse_other_type("engine", engine, Engine)
            raise
        if not is_served:
            raise ValueError(f"engine: {engine} cannot run code made for {pd.target}")
        begin = engine.verbose.now() if engine.verbose.creates else 0
        cached, source = (cache or primitive_provider()).fetch(pd)
        own = self.__dict__
        own["pd"], own["engine"], own["source"], own["_cached"] = pd, engine, source, cached
        own["resources"] = ResourceMapper(engine)
        own["_execution"] = None if source == "memory" else self._realized()
        own["_wanted"] = own["_text"] = None
        if begin:
            engine.verbose.created(self._described(), self.source, engine.verbose.now() - begin)

    @property
    def resource(self) -> Resource[Any, Any]:
        """The realized kernels and tables, which belong to the engine. Raises what realizing binaries raises."""
        return self.resources.get(self._cached)

    def execute(self, stream: Stream, args: Mapping[int, Memory] | Mapping[Arg, Memory]) -> None:
        """Compute on memories under their arguments, in the order of the stream.

        Raises TypeError for what is no stream, ValueError if a memory is missing, has another descriptor or is on another
        engine, KernelFailed if a kernel failed, and what realizing binaries raises.
        """
        engine = self.engine
        try:
            is_own = stream.engine is engine
        except AttributeError:
            _refuse_other_type("stream", stream, Stream)
            raise
        if not is_own:
            raise ValueError(
                f"stream: expect one on the primitive's {engine}, got one on another engine, {stream.engine}"
            )
        given: Mapping[Any, Memory] = args
        wanted = self._wanted
        if wanted is None:
            wanted = describe_arguments(self.pd)
            self.__dict__["_wanted"] = wanted
        used: dict[int, Memory] = {}
        for arg, desc in wanted.items():
            memory = given.get(arg)
            if memory is None or memory.desc is not desc or memory.engine is not engine:
                memory = check_argument(arg, memory, desc, engine)
            used[arg] = memory
        execution = self._execution or self._keep_execution()
        execution.execute(stream, used, self._described() if engine.verbose.executes else None)

    def _keep_execution(self) -> Execution:
        """Realize this primitive and keep what executes it."""
        # Several threads may each make one here, of the same resource: any of them will do.
        execution = self._realized()
        self.__dict__["_execution"] = execution
        return execution

    def _described(self) -> str:
        """Return what verbose lines say of this primitive."""
        text = self._text
        if text is None:
            from ..verbose.text import describe_primitive

            text = describe_primitive(self.pd, self.engine.index)
            self.__dict__["_text"] = text
        return text

    def _realized(self) -> Execution:
        resource = self.resource
        if isinstance(resource, RealizedPrimitive):
            return CpuExecution(resource, self.pd.attr.jobs)
        from .opencl_execution import OpenClExecution

        return OpenClExecution(cast("RealizedOpenClPrimitive", resource))


def _refuse_other_type(name: str, given: object, kind: type) -> None:
    """Raise TypeError for an object that is not of a kind: asked only where it lacks something, so that hits take no longer."""
    if not isinstance(given, kind):
        article = "an" if kind is Engine else "a"
        raise TypeError(f"{name}: expect {article} {kind.__name__}, got {type(given).__name__}")
