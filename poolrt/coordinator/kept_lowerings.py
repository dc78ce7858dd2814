"""Lowered graphs that the node keeps, so that the next coordinator that gets the same graph lowers nothing.

Lowering takes 40 ms for a graph of one node, most of it imports, and a second for a large one. What is kept is signed
(`poolrt.cachestore.results`), and its key has all that lowering depends on: graph, targets, threads, settings, versions of
the compilers, and a stamp of the sources. The keys of the primitives are in it, so their sources are read for none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

import msgpack

from poolrt.cachestore import Key
from poolrt.version import VERSION
from poolrt.workers.desc.codec import decode, encode
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.primitives.toolchain import toolchain

from .instructions import LoweredGraph
from .lowering import Lowered, LoweringRequest
from .source_stamp import SourceStamp, stamp_sources

if TYPE_CHECKING:
    from poolrt.cachestore import CacheStore

#: Raise it when the form of what is kept changes.
_SCHEMA: Final = 1


class KeptLowerings:
    """The lowered graphs of a store, which ``opened`` returns.

    ``request`` has the settings of this coordinator; its name and targets do not count.
    """

    def __init__(self, opened: Callable[[], CacheStore]) -> None:
        self._opened = opened
        self._stamp = _stamp()

    def key(self, request: LoweringRequest, graph: bytes) -> Key | None:
        """Return the key of a graph, given by a digest of its bytes and its targets; None if it cannot be kept.

        That is so while sources change, and for plans with texts, which are for people who look at them.
        """
        if self._stamp is None or request.with_texts:
            return None
        return Key(
            {
                "schema": _SCHEMA,
                "graph": graph,
                "target": cpu_target(request.max_isa).fields(),
                "max_isa": request.max_isa,
                "threads": request.threads,
                "functions": request.functions,
                "version": VERSION,
                "toolchain": toolchain("cpu"),
                "sources": self._stamp.digest,
            }
        )

    def find(self, key: Key) -> Lowered | None:
        """Return what the node has under a key, or None."""
        data = self._opened().results.get(key)
        return _unpack(data) if data is not None else None

    def keep(self, key: Key, lowered: Lowered) -> None:
        """Keep a graph that was just lowered, unless a source has changed meanwhile."""
        if _stamp() == self._stamp:
            self._opened().results.put(key, _pack(lowered))


def _stamp() -> SourceStamp | None:
    try:
        stamp = stamp_sources()
    except OSError:
        return None
    return stamp if stamp.is_of_this_process else None


def _pack(lowered: Lowered) -> bytes:
    return cast("bytes", msgpack.packb([[key.canonical for key in lowered.keys], encode(lowered.graph)]))


def _unpack(data: bytes) -> Lowered | None:
    """Return the lowered graph in verified bytes; None if a program with another form has made them."""
    try:
        keys, graph = cast("list[Any]", msgpack.unpackb(data))
        return Lowered(decode(LoweredGraph, graph), tuple(map(Key.from_canonical, keys)))
    except (ValueError, TypeError, msgpack.UnpackException):
        return None
