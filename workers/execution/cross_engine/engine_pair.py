"""The two engines of a cross-engine reorder: which streams it runs on, and which of the two computes."""

from __future__ import annotations

from poolrt.cachestore.deferred_namedtuple import NamedTuple

from ...desc import Arg
from ...engines.engine import Engine
from ...engines.target import Target
from ...streams.stream import Stream


class EnginePair(NamedTuple):
    """The engines of a cross-engine reorder. At least one is no CPU."""

    src: Engine
    dst: Engine

    @property
    def stream_engine(self) -> Engine:
        """The engine on whose streams every reorder can run: that of src, or if it is a CPU that of dst."""
        return self.dst if self.src.kind == "cpu" else self.src

    def check_stream(self, stream: Stream, compute_kind: str) -> None:
        """Raise TypeError for another object than a stream, ValueError for a stream that the reorder cannot run on.

        Streams of the OpenCL engine are right; so are a CPU's if ``compute_kind`` is cpu, because every engine of that
        kind works on the host's memory.
        """
        if not isinstance(stream, Stream):
            raise TypeError(f"stream: expect a Stream, got {type(stream).__name__}")
        if stream.engine is not self.stream_engine and not stream.engine.kind == compute_kind == "cpu":
            either = " or on one of kind cpu" if compute_kind == "cpu" else ""
            which = ", another engine of the same device" if repr(stream.engine) == repr(self.stream_engine) else ""
            raise ValueError(f"stream: expect one on {self.stream_engine}{either}, got one on {stream.engine}{which}")

    def compute_engine(self, target: Target) -> Engine:
        """Return the engine that computes code made for a target."""
        if target.engine_kind == self.stream_engine.kind:
            return self.stream_engine
        return next((engine for engine in self if engine.kind == target.engine_kind), Engine(target.engine_kind))

    def engine_of(self, arg: int, compute_engine: Engine) -> Engine:
        """Return the engine that an argument must be on."""
        known: dict[int, Engine] = {Arg.SRC: self.src, Arg.DST: self.dst, Arg.SCRATCHPAD: compute_engine}
        return known.get(arg, self.stream_engine)
