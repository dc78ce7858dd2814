"""Functions of clients in a worker: each is loaded once and called often, beside the globals of its client's main module."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgpack

from poolrt.cachestore.portable_error import sendable

from ..ipc.bounded_decoding import skip_items
from ..ipc.call_ring import INLINE_BYTES
from ..ipc.channel import ESCAPES, MAX_MESSAGE, Message
from ..ipc.outlined_payload import is_outlined
from ..ipc.protocol import Kind
from .call_memory import CallMemory
from .fork_mark import ForkMark
from .placed_arrays import PlacedArguments, parse_placed
from .plain_pickles import UNPACKING_ERRORS, pack_numbers, pack_scalar, pickle_scalar, unpack_scalar

if TYPE_CHECKING:
    from .pickled import Namespace

#: Characters of a traceback that are sent, its first and its last ones: it may quote values of any size, after a type.
_TEXT_BEGIN: Final = 4 * 1024
_TEXT_END: Final = 12 * 1024
#: Longest result, in bytes.
_RESULT_BYTES: Final = MAX_MESSAGE // 2
#: Arguments with places that are kept as they were parsed, and their bytes at most: programs give the same arrays again.
_PLACED: Final = 64
_SHORT: Final = 1024


class _Function:
    """A function as it was sent, until it is loaded; then itself and the globals that it uses."""

    __slots__ = ("call", "data", "globals")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.call: Any = None
        self.globals: dict[str, Any] = {}


class _Client:
    """What a worker keeps of one client. ``unfit`` is the answer to its calls once its initializer has failed.

    ``initializer`` is a function and arguments until it is called.
    """

    __slots__ = ("initializer", "namespace", "unfit")

    def __init__(self) -> None:
        from .pickled import Namespace

        self.namespace: Namespace = Namespace()
        self.initializer: tuple[int, bytes] | None = None
        self.unfit: list[str] | None = None


class Functions:
    """The functions and clients of a worker. A function's exception is the answer to its call."""

    def __init__(self, memory: CallMemory) -> None:
        self._memory = memory
        self._mark = ForkMark()
        self._functions: dict[int, _Function] = {}
        self._clients: dict[int, _Client] = {}
        #: Arguments that are scalars and places of arrays, by their bytes.
        self._placed: dict[bytes, PlacedArguments] = {}

    def take(self, message: Message) -> None:
        """Keep a function; the first call loads it, so that an error of its loading is the answer to a call."""
        _, number, payload = message
        self._functions[number] = _Function(payload)

    def forget(self, message: Message) -> None:
        """Forget a function."""
        self._functions.pop(message[1], None)

    def leave(self, message: Message) -> None:
        """Forget a client."""
        self._clients.pop(message[1], None)

    def prepare(self, message: Message) -> None:
        """Keep a client's initializer; its first call here calls it before."""
        _, number, function, payload = message
        self._client(number).initializer = function, payload

    def apply(self, message: Message) -> Message:
        """Call a function. Its exception is the answer, also one that is meant to exit a process."""
        _, token, number, function, payload = message
        kind, *fields = self.call(number, function, payload)
        if kind is Kind.ANSWER:
            return [kind, token, "numba" in sys.modules, *fields]
        return [kind, token, *fields]

    def call_placed(self, number: int, function: int, payload: bytes) -> bytes | tuple[Any, ...]:
        """Call a function with what `pack_placed` has packed, as `call_short`."""
        answer = self.call_short(number, function, payload, placed=True)
        return self._close(number) or answer

    def call_short(
        self, number: int, function: int, payload: bytes, *, placed: bool = False
    ) -> bytes | tuple[Any, ...]:
        """Call a function with what `pack_scalars` has packed, as `call`; in fewer steps if all is ready for it.

        A value that is a scalar or a list of numbers is packed, too, and the answer is no tuple but these bytes. With
        ``placed``, `call_placed` calls this.
        """
        client, known = self._clients.get(number), self._functions.get(function)
        if (
            client is None
            or client.initializer is not None
            or client.unfit is not None
            or known is None
            or known.call is None
        ):
            return self._call_first(number, function, payload, placed=placed)
        try:
            args = self._open_placed(payload) if placed else unpack_scalar(payload)
        except Exception as error:  # noqa: BLE001 - a client may have written any bytes
            return _not_loaded(error)
        try:
            if known.globals:
                client.namespace.install(known.globals)
            try:
                returned = known.call(*args)
            finally:
                if not self._mark.byte[0] and not self._mark.is_here():
                    os._exit(0)
            value = pack_numbers(returned) if type(returned) is list else pack_scalar(returned)
            if value is not None and len(value) <= INLINE_BYTES:
                return value
            value = self._memory.pack(partial(client.namespace.pickle_result, returned), _RESULT_BYTES)
        except BaseException as error:  # noqa: BLE001 - as in `_call`
            return (Kind.THREW, _trace(), _pickle_exception(client, error))
        return (Kind.ANSWER, value)

    def _call_first(self, number: int, function: int, payload: bytes, *, placed: bool) -> tuple[Any, ...]:
        """Call a function as `call_short`, for which something is not ready."""
        if placed:
            return self._call(number, function, payload, plain=True, placed=True)
        try:
            args = unpack_scalar(payload)
        except UNPACKING_ERRORS as error:
            return _not_loaded(error)
        return self.call(number, function, pickle.dumps((args, {})), plain=True)

    def call(self, number: int, function: int, payload: bytes, *, plain: bool = False) -> tuple[Any, ...]:
        """Call a function of a client with pickled arguments, which are ``plain`` if they refer to nothing of the client's.

        Return ANSWER and the payload of the value, THREW, text and pickled exception, or UNFIT, error, message and log.
        """
        answer = self._call(number, function, payload, plain=plain)
        return self._close(number) or answer

    def _close(self, number: int) -> tuple[Any, ...] | None:
        """End the memory of a call; return an answer only if that fails."""
        try:
            # The frames that refer to arguments and value have ended, except those that the function has kept.
            self._memory.close()
        except OSError as error:
            return (Kind.THREW, _trace(), _pickle_exception(self._clients.get(number), error))
        return None

    def _call(
        self, number: int, function: int, payload: bytes, *, plain: bool, placed: bool = False
    ) -> tuple[Any, ...]:
        client = self._clients.get(number)
        try:
            if client is None:
                client = self._client(number)
            if client.initializer is not None:
                self._initialize(client, *client.initializer)
            if client.unfit is not None:
                return (Kind.UNFIT, *client.unfit)
            try:
                call, (args, kwargs) = self._load(client.namespace, function, payload, plain=plain, placed=placed)
            except BaseException as error:  # noqa: BLE001 - loading runs the user's code
                return _not_loaded(error)
            try:
                returned = call(*args, **kwargs)
            finally:
                # The function has forked, and the child returned from it: only the parent goes on as the worker.
                if not self._mark.is_here():
                    os._exit(0)
            value = pickle_scalar(returned)
            if value is None or len(value) > INLINE_BYTES:
                value = self._memory.pack(partial(client.namespace.pickle_result, returned), _RESULT_BYTES)
        except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt of a user's function too
            return (Kind.THREW, _trace(), _pickle_exception(client, error))
        return (Kind.ANSWER, value)

    def _client(self, number: int) -> _Client:
        client = self._clients.get(number)
        if client is None:
            client = self._clients[number] = _Client()
        return client

    def _initialize(self, client: _Client, function: int, payload: bytes) -> None:
        """Call a client's initializer. If it fails, all calls of the client do."""
        client.initializer = None
        try:
            call, (args, kwargs) = self._load(client.namespace, function, payload)
            call(*args, **kwargs)
        except BaseException as error:
            import logging

            # As ProcessPoolExecutor does, so that handlers which an initializer has set up see it.
            logging.getLogger("concurrent.futures").critical("Exception in initializer:", exc_info=True)
            client.unfit = [
                "InitializerFailed",
                f"the initializer failed in a worker process: {_line(error)}",
                _trace(),
            ]

    def _open_placed(self, payload: bytes) -> Sequence[Any]:
        """Return the arguments that `pack_placed` has packed. Raises what `parse_placed` raises."""
        parsed = self._placed.get(payload)
        if parsed is None:
            parsed = parse_placed(unpack_scalar(payload))
            if len(payload) <= _SHORT:
                if len(self._placed) >= _PLACED:
                    self._placed.clear()
                self._placed[payload] = parsed
        return parsed.fill(self._memory.open_places(parsed.places))

    def _load(
        self, namespace: Namespace, number: int, payload: bytes, *, plain: bool = False, placed: bool = False
    ) -> tuple[Any, Any]:
        """Return a function and its arguments, with the globals of both in place."""
        if not number:
            (call, args, kwargs), found = _load_with_folders(namespace, payload)
            namespace.install(found)
            return call, (args, kwargs)
        function = self._functions[number]
        if function.call is None:
            function.call, function.globals = _load_with_folders(namespace, function.data)
            function.data = b""
        if function.globals:
            namespace.install(function.globals)
        if placed:
            return function.call, (self._open_placed(payload), {})
        data: bytes | memoryview = payload
        buffers: list[Any] = []
        if is_outlined(payload):
            data, buffers = self._memory.open(payload)
        elif plain:
            return function.call, pickle.loads(payload)
        if plain:
            return function.call, pickle.loads(data, buffers=buffers)
        arguments, found = namespace.load(data, 0, buffers)
        namespace.install(found)
        return function.call, arguments


def _load_with_folders(namespace: Namespace, payload: bytes) -> tuple[Any, dict[str, Any]]:
    """Let this process import from the folders that the client imports from; return what `Namespace.load` does."""
    end = skip_items(payload, 1, 1, len(payload))
    places = msgpack.unpackb(memoryview(payload)[1:end], unicode_errors=ESCAPES)
    sys.path.extend(place for place in places if place not in sys.path)
    # The pickle that follows may be long, so it is not copied; bytes have a length of 1, 2 or 4 bytes.
    return namespace.load(payload, end + 1 + {0xC4: 1, 0xC5: 2, 0xC6: 4}[payload[end]])


def _line(error: BaseException) -> str:
    text = sendable(str(error))
    return f"{type(error).__name__}: {text[:2000]}" if text else type(error).__name__


def _not_loaded(error: BaseException) -> tuple[Any, ...]:
    """Return the answer to a call that cannot begin, within a handler of the error."""
    text = f"a function or its arguments cannot be loaded in a worker process: {_line(error)}"
    return (Kind.UNFIT, "CallNotLoaded", text, _trace())


def _trace() -> str:
    import traceback  # it imports what reads sources, 3 ms

    text = traceback.format_exc()
    left_out = len(text) - _TEXT_BEGIN - _TEXT_END
    if left_out > 0:
        text = f"{text[:_TEXT_BEGIN]}\n... {left_out} characters are left out ...\n{text[-_TEXT_END:]}"
    return sendable(text)


def _pickle_exception(client: _Client | None, error: BaseException) -> bytes:
    """Return a pickled exception, empty if it cannot be pickled or is too large to be sent."""
    if client is None:
        return b""
    try:
        data = client.namespace.pickle_result(error)
        pickle.loads(data)
    except BaseException:  # noqa: BLE001 - a user's class may fail in any way; only the text is sent then
        return b""
    return data if len(data) <= _RESULT_BYTES else b""
