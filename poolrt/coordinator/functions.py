"""The functions that clients have sent: kept for their calls, and sent to each worker once, before its first call of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from poolrt.cachestore.deferred_dataclass import dataclass, field
from poolrt.errors import PoolRefused
from poolrt.workers.ipc.bounded_decoding import Payload
from poolrt.workers.ipc.protocol import Kind

from .instructions import Instruction, Send

#: Functions of one client, and their bytes; poolrt's own stays far below.
FUNCTIONS_LIMIT: Final = 1024
FUNCTIONS_BYTES: Final = 512 * 1024 * 1024


@dataclass(slots=True, eq=False)
class Function:
    """A function as its client sent it: nothing in the coordinator reads it."""

    number: int
    data: bytes | Payload
    owner: ClientFunctions
    #: Calls that need it; it is dropped once its client does not want it and this is 0.
    users: int = 0
    wanted: bool = True


@dataclass(slots=True, eq=False)
class ClientFunctions:
    """The functions of one client, by its own numbers, and what its workers call first: a function and its arguments."""

    known: dict[int, Function] = field(default_factory=dict)
    #: How many are kept, and their bytes: also those that only calls under way need.
    count: int = 0
    nbytes: int = 0
    initializer: tuple[Function, bytes | Payload] | None = None


class Holder(Protocol):
    """The properties of a worker that say which functions it has."""

    number: int
    functions: set[int]
    #: Clients whose functions it has called.
    clients: set[int]


class Functions:
    """The functions of all clients. ``workers`` are those that may have some."""

    def __init__(self, numbers: Iterator[int], workers: Mapping[int, Holder], out: list[Instruction]) -> None:
        self._numbers = numbers
        self._workers = workers
        self._out = out
        self._clients: dict[int, ClientFunctions] = {}

    def add(self, client: int, number: int, data: bytes | Payload) -> None:
        """Keep a function under a client's number for it. Raises PoolRefused beyond a limit."""
        owner = self._clients.setdefault(client, ClientFunctions())
        if number in owner.known or not number:
            raise PoolRefused(f"function {number} is known already")
        if owner.count >= FUNCTIONS_LIMIT or owner.nbytes + len(data) > FUNCTIONS_BYTES:
            raise PoolRefused(f"a client has more than {FUNCTIONS_LIMIT} functions or {FUNCTIONS_BYTES} bytes of them")
        owner.count += 1
        owner.nbytes += len(data)
        owner.known[number] = Function(next(self._numbers), data, owner)

    def discard(self, client: int, number: int) -> None:
        """Forget a function of a client, once its calls have ended. Raises PoolRefused if there is none."""
        owner = self._clients.get(client)
        function = owner.known.pop(number, None) if owner is not None else None
        if owner is None or function is None:
            raise PoolRefused(f"function {number} is not known")
        function.wanted = False
        self._drop_if_unused(function)

    def set_initializer(self, client: int, number: int, arguments: bytes | Payload) -> None:
        """Call a function with arguments in each worker before others of its client. Raises PoolRefused."""
        function = self.find(client, number)
        owner = self._clients[client]
        if function is None or owner.initializer is not None:
            raise PoolRefused("a client has one initializer, which is a function that it has sent")
        function.users += 1
        owner.initializer = function, arguments

    def find(self, client: int, number: int) -> Function | None:
        """Return a function of a client, None for number 0. Raises PoolRefused if there is none."""
        if not number:
            return None
        owner = self._clients.get(client)
        if owner is None or number not in owner.known:
            raise PoolRefused(f"function {number} is not known")
        return owner.known[number]

    def release(self, function: Function) -> None:
        """End a call of a function."""
        function.users -= 1
        self._drop_if_unused(function)

    def prepare(self, worker: Holder, client: int, function: Function | None) -> None:
        """Send a worker what it needs before it calls a function of a client, and does not have yet."""
        owner = self._clients.get(client)
        if client not in worker.clients:
            worker.clients.add(client)
            if owner is not None and owner.initializer is not None:
                first, arguments = owner.initializer
                self._send(worker, first)
                self._out.append(Send(worker.number, [Kind.PREPARE, client, first.number, arguments]))
        if function is not None:
            self._send(worker, function)

    def withdraw(self, client: int) -> None:
        """Forget a client that has disconnected; functions of calls under way are dropped when these end."""
        owner = self._clients.pop(client, None)
        for worker in self._workers.values():
            if client in worker.clients:
                worker.clients.discard(client)
                self._out.append(Send(worker.number, [Kind.LEAVE, client]))
        if owner is None:
            return
        for function in owner.known.values():
            function.wanted = False
            self._drop_if_unused(function)
        if owner.initializer is not None:
            self.release(owner.initializer[0])

    def _send(self, worker: Holder, function: Function) -> None:
        if function.number not in worker.functions:
            worker.functions.add(function.number)
            self._out.append(Send(worker.number, [Kind.FUNCTION_BODY, function.number, function.data]))

    def _drop_if_unused(self, function: Function) -> None:
        if function.wanted or function.users:
            return
        function.owner.count -= 1
        function.owner.nbytes -= len(function.data)
        for worker in self._workers.values():
            if function.number in worker.functions:
                worker.functions.discard(function.number)
                self._out.append(Send(worker.number, [Kind.FORGET, function.number]))
