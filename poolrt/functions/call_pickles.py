"""Functions and their arguments as they are sent to workers: pickles, and buffers beside them."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import msgpack

from poolrt.cachestore.deferred_namedtuple import NamedTuple
from poolrt.errors import ArenaFull, PoolRefused
from poolrt.workers.ipc.call_ring import INLINE_BYTES
from poolrt.workers.ipc.channel import ESCAPES, FRAME
from poolrt.workers.ipc.protocol import CALL_BYTES, PLAIN
from poolrt.workers.processes.outlined_buffers import OutlinedBuffers, size_of
from poolrt.workers.processes.pickled import pickle_for_worker
from poolrt.workers.processes.placed_arrays import pack_placed
from poolrt.workers.processes.plain_pickles import PlainPickles, pickle_scalars

from .call_buffers import CallBuffers, PlacedBuffers, SentBuffers
from .called_function import name_of
from .function_stamp import FunctionStamp, stamp

if TYPE_CHECKING:
    from poolrt.connection.link import Link
    from poolrt.memory.shared_memory import SharedMemory

#: Longest pickle of a function, in bytes, that is sent with each call: one that a module has is little more than its name.
_INLINE: Final = 256
#: Calls of such a function before it is kept by the coordinator, and functions that are counted.
HOT: Final = 3
_COUNTED: Final = 64
#: The part of the arena that arguments may have, unless there is one call only: runs need memory too.
_PART: Final = 2
#: Functions that may have a stamp.
_STAMPED: Final = (types.FunctionType, types.BuiltinFunctionType)


class KeptFunction:
    """A pickled function. ``number`` is that under which the coordinator has it, 0 if it does not."""

    __slots__ = ("calls", "data", "digest", "in_flight", "name", "number", "on_rings")

    def __init__(self, data: bytes, digest: bytes, name: str) -> None:
        self.data = data
        self.name = name
        self.digest = digest
        self.number = 0
        self.in_flight = 0
        #: Calls by messages, and the number under which it was asked to be called on rings.
        self.calls = 0
        self.on_rings = 0


class Packed(NamedTuple):
    """A call that is ready to be sent.

    ``function`` is None if the payload has the function; ``plain`` is `PLAIN` or 0; ``sent`` has the buffers of the arguments;
    ``name`` is the function's, for errors.
    """

    function: KeptFunction | None
    payload: bytes
    plain: int
    sent: SentBuffers | None
    name: str


Pack: TypeAlias = "Callable[[tuple[Any, ...], dict[str, Any]], Packed]"


class CallPickles:
    """Pickles functions once, if they cannot change, and arguments. ``known`` are the functions that the coordinator has."""

    def __init__(self, link: Link, known: OrderedDict[bytes, KeptFunction]) -> None:
        # Not the link itself, which has to end with its session.
        self._link = weakref.ref(link)
        self._known = known
        #: Stamps of functions, and what was made of them; functions that are sent with each call, and how often they were.
        self._stamped: WeakKeyDictionary[Any, tuple[FunctionStamp, KeptFunction]] = WeakKeyDictionary()
        self._inline: OrderedDict[bytes, int] = OrderedDict()
        #: The same of functions of `Pool.map`, by what calls them for a chunk.
        self._mapped: WeakKeyDictionary[Any, dict[Any, tuple[FunctionStamp, KeptFunction]]] = WeakKeyDictionary()
        #: The function that was found last, with its entry: a weak dictionary needs ten times as long.
        self._last: tuple[weakref.ref[Any], FunctionStamp, KeptFunction] | None = None
        self._counting = threading.Lock()
        self._plain = PlainPickles()
        self._pickling = threading.Lock()
        #: Bytes of the arena that arguments have, and those of calls that have ended since they were last counted.
        self._used = 0
        self._ended: deque[int] = deque()

    def find(self, fn: Callable[..., Any]) -> KeptFunction | None:
        """Return what the coordinator has of a function, if it is certain that its pickle has not changed."""
        last = self._last
        if last is not None and last[0]() is fn:
            mark, function = last[1], last[2]
        else:
            found = self._stamped.get(fn) if type(fn) in _STAMPED else None
            if found is None:
                return None
            mark, function = found
            self._last = weakref.ref(fn), mark, function
        return function if function.number and mark.holds() else None

    def pack(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Packed:
        """Return a call with its function, which is sent with the call if both are short and it was called a few times only."""
        found = self.find(fn)
        if found is not None:
            return Packed(found, *self.pack_arguments(args, kwargs), found.name)
        mark = stamp(fn) if type(fn) in _STAMPED else None
        data = pickle_for_worker(fn)
        if len(data) <= _INLINE and self._count_inline(data) < HOT:
            buffers = OutlinedBuffers()
            whole = pickle_for_worker((fn, args, kwargs), buffers)
            if not buffers.found and len(whole) <= INLINE_BYTES:
                return Packed(None, with_folders(whole), 0, None, name_of(fn))
            del buffers
        function = self.keep(data, name_of(fn))
        if mark is not None and mark.holds():
            self._stamped[fn] = mark, function
            self._last = None
        return Packed(function, *self.pack_arguments(args, kwargs), function.name)

    def pack_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bytes, int, SentBuffers | None]:
        """Return the payload of arguments, `PLAIN` or 0, and their buffers. Raises what pickling raises."""
        scalars = None if kwargs else pickle_scalars(args)
        if scalars is not None and len(scalars) <= INLINE_BYTES:
            return scalars, PLAIN, None
        buffers = OutlinedBuffers()
        data, plain = self._pickle((args, kwargs), buffers)
        if not buffers.found and len(data) <= INLINE_BYTES:
            return data, plain, None
        sent = self._outline(buffers, data)
        if sent is not None:
            return sent.payload, plain, sent
        if buffers.found:
            data, plain = self._pickle((args, kwargs), None)
        return bounded(data, "a function's arguments, for which the arena has no room,"), plain, None

    def pack_placed(self, args: tuple[Any, ...]) -> tuple[bytes, PlacedBuffers] | None:
        """Return the payload of arguments that are scalars and arrays of the arena, and their buffers; None for any others."""
        memory = self.memory()
        if memory is None:
            return None
        packed = pack_placed(args, memory.find)
        return None if packed is None else (packed[0], PlacedBuffers(args, packed[1]))

    def _pickle(self, value: object, buffers: OutlinedBuffers | None) -> tuple[bytes, int]:
        """Return a pickle, and `PLAIN` or 0; ``buffers`` get what is long."""
        plain: bytes | None = None
        if self._pickling.acquire(blocking=False):
            try:
                plain = self._plain.dumps(value, buffers)
            finally:
                self._pickling.release()
        return (pickle_for_worker(value, buffers), 0) if plain is None else (plain, PLAIN)

    def _outline(self, buffers: OutlinedBuffers, data: bytes) -> CallBuffers | None:
        """Return the buffers of a call with their payload, None if the arena has no room for them."""
        memory = self.memory()
        if memory is None:
            return None
        nbytes = len(data) + sum(map(size_of, buffers.found))
        with self._counting:
            while self._ended:
                self._used -= self._ended.popleft()
            if self._used and self._used + nbytes > memory.nbytes // _PART:
                return None
        sent = CallBuffers(memory, self._ended.append)
        try:
            sent.fill(buffers, data)
        except (ArenaFull, PoolRefused):  # no memory, or this program has as many slots as it may
            return None
        except BaseException:
            sent.end()
            raise
        with self._counting:
            self._used += sent.used
        return sent

    def memory(self) -> SharedMemory | None:
        """Return the arena; the first use waits until the coordinator has started."""
        link = self._link()
        return None if link is None else link.memory

    def _count_inline(self, data: bytes) -> int:
        """Count a submission of a short function; return how many there were before."""
        with self._counting:
            count = self._inline.pop(data, 0)
            self._inline[data] = count + 1
            while len(self._inline) > _COUNTED:
                self._inline.popitem(last=False)
        return count

    def keep_mapped(self, fn: Callable[..., Any], caller: Callable[..., Any] | None) -> KeptFunction:
        """Return a function, or ``caller`` with it, for many calls; it is pickled unless that is certain to be as before."""
        has_stamp = type(fn) in _STAMPED
        kept = self._mapped.get(fn) if has_stamp else None
        found = kept.get(caller) if kept is not None else None
        if found is not None and found[0].holds():
            return self._known.get(found[1].digest, found[1])
        mark = stamp(fn) if has_stamp else None
        function = self.keep(pickle_for_worker(fn if caller is None else partial(caller, fn)), name_of(fn))
        if mark is not None and mark.holds():
            self._mapped.setdefault(fn, {})[caller] = mark, function
        return function

    def keep(self, data: bytes, name: str) -> KeptFunction:
        """Return a pickled function, which the coordinator may have already."""
        found = bounded(with_folders(data), "a function with the globals that it uses")
        digest = hashlib.blake2b(found, digest_size=32).digest()
        return self._known.get(digest) or KeptFunction(found, digest, name)


class PackedOnce:
    """A function that is pickled once for many calls. ``function`` is None until then, and if it is sent with each call."""

    def __init__(self, pickles: CallPickles, fn: Callable[..., Any], caller: Callable[..., Any] | None = None) -> None:
        self._pickles = pickles
        self._fn = fn
        #: What is called with the function and the arguments; None: the function.
        self._caller = caller
        self._name = name_of(fn)
        self.function: KeptFunction | None = None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Packed:
        if self.function is None:
            self.function = self._pickles.keep_mapped(self._fn, self._caller)
        return Packed(self.function, *self._pickles.pack_arguments(args, kwargs), self._name)


def bounded(payload: bytes, what: str = "a function and its arguments") -> bytes:
    """Return a payload that a message can have. Raises PoolRefused for a longer one, and names ``what`` it is."""
    if len(payload) > CALL_BYTES - FRAME:
        have = "have" if "arguments" in what else "has"
        text = f"{what} {have} {len(payload)} bytes, more than {CALL_BYTES - FRAME}"
        raise PoolRefused(f"{text}: split the arguments, or use a graph")
    return payload


def with_folders(data: bytes) -> bytes:
    """Return a pickle after the folders that this process imports from: '' stands for the current one."""
    packed: bytes = msgpack.packb([[place or os.getcwd() for place in sys.path], data], unicode_errors=ESCAPES)
    return packed
