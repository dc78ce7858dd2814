"""One connection of a session to a coordinator, and what belongs to it: shared memory, facts, the coordinator's process."""

from __future__ import annotations

import _socket
import os
import select
import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from poolrt.cachestore.peer import credentials
from poolrt.coordinator.configuration import Configuration
from poolrt.coordinator.peers import open_pidfd
from poolrt.errors import PoolClosed
from poolrt.memory.shared_memory import SharedMemory
from poolrt.settings import Settings
from poolrt.workers.ipc.channel import Channel
from poolrt.workers.ipc.protocol import Kind

from .client import Client
from .launch import Coordinator

if TYPE_CHECKING:
    from poolrt.functions.sent_functions import Functions

#: Seconds from the end of a connection until a killed server has exited: a large arena takes a while.
_EXIT_S: Final = 1.0


class Link:
    """A connection over ``sock``; ``coordinator`` is the one that this process has started, None for a server.

    It greets the coordinator and does not wait until an answer is needed. A server has ``start_timeout_s`` seconds to
    answer.
    """

    __slots__ = (
        "__weakref__",
        "_coordinator",
        "_facts",
        "_loading",
        "_mapping",
        "_memory",
        "_server",
        "client",
        "functions",
        "preparing",
    )

    def __init__(
        self, sock: _socket.socket, settings: Settings, coordinator: Coordinator | None, start_timeout_s: float
    ) -> None:
        self._coordinator = coordinator
        self._memory: SharedMemory | None = None
        self._facts: Mapping[str, Any] = {}
        self._mapping = threading.Lock()
        self._loading: dict[int, threading.RLock] = {}
        #: What sends functions, once there is one, and the lock of the thread that makes it.
        self.functions: Functions | None = None
        self.preparing = threading.Lock()
        #: Shows that a server has exited; -1 if it runs where this process cannot see it.
        self._server = -1
        greeting = [[Kind.CONFIGURE, Configuration.of(settings)._asdict()]] if coordinator is not None else []
        try:
            if coordinator is None:
                self._server = open_pidfd(credentials(sock)[0])
                if self._server >= 0:
                    weakref.finalize(self, os.close, self._server).atexit = False
            ending = str if coordinator is None else coordinator.ending
            channel = Channel(sock, accepts_fds=True)
            silence_s, spin_us = settings.coordinator_timeout_s, settings.spin_us
            self.client = Client(channel, greeting, start_timeout_s, silence_s, ending, spin_us)
        except BaseException:
            sock.close()
            if coordinator is not None:
                coordinator.end()
            raise

    @property
    def memory(self) -> SharedMemory:
        """The arena; the first use waits until the coordinator has started. Raises CoordinatorLost.

        Ends the connection with a PoolClosed if this process cannot map the arena.
        """
        with self._mapping:
            if self._memory is None:
                fd, _, self._facts = self.client.welcome()
                try:
                    self._memory = SharedMemory(self.client, fd)
                except OSError as error:
                    self.client.close(
                        PoolClosed(
                            f"this process cannot use the pool's shared memory: {error.strerror}; lower the pool's setting "
                            "arena_bytes, or raise the limit of address space (ulimit -v)"
                        )
                    )
                    self.client.check_open()
                    raise
            return self._memory

    @property
    def facts(self) -> Mapping[str, Any]:
        """The coordinator's numbers of workers and threads, and its engine."""
        self.memory  # noqa: B018 - waits for them
        return self._facts

    def loading(self, number: int) -> threading.RLock:
        """Return the lock of the thread that loads a model on this connection, for one number of each model."""
        return self._loading.setdefault(number, threading.RLock())

    def release_spare(self) -> None:
        """Release the memory that is kept for later outputs."""
        if self._memory is not None:
            self._memory.release_outputs()

    def has_exited(self) -> bool:
        """Return whether the server has certainly exited: it then writes no more to its arena."""
        if self._server < 0:
            return False
        poll = select.poll()
        poll.register(self._server, select.POLLIN)
        return bool(poll.poll(_EXIT_S * 1000))

    def close(self) -> None:
        """End the connection, and the coordinator if this process has started it. May be repeated."""
        try:
            self.client.close()
        finally:
            if self._coordinator is not None:
                self._coordinator.end()
