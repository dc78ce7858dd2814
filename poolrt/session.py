"""The session of a pool: the connection, shared memory, settings, and the coordinator if it is the pool's own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

from poolrt.settings import Settings
from poolrt.workers.ipc.channel import Channel
from poolrt.workers.ipc.protocol import Kind

from .client import Client
from .coordinator.configuration import Configuration
from .launch import Coordinator
from .shared_memory import SharedMemory


class Session:
    """A connection to a coordinator, over ``sock``. It does not wait until an answer is needed."""

    def __init__(self, sock: socket.socket, settings: Settings, coordinator: Coordinator | None) -> None:
        """Greet the coordinator; the pool's own coordinator gets its configuration first."""
        self.settings = settings
        self._coordinator = coordinator
        self._memory: SharedMemory | None = None
        self._mapping = threading.Lock()
        self._facts: Mapping[str, Any] = {}
        greeting = [[Kind.CONFIGURE, Configuration.of(settings)._asdict()]] if coordinator is not None else []
        try:
            bounds = settings.start_timeout_s, settings.coordinator_timeout_s
            ending = str if coordinator is None else coordinator.ending
            self.client = Client(Channel(sock, accepts_fds=True), greeting, *bounds, ending)
        except BaseException:
            sock.close()
            if coordinator is not None:
                coordinator.end()
            raise

    @property
    def memory(self) -> SharedMemory:
        """The arena; the first use waits until the coordinator has started. Raises CoordinatorLost."""
        with self._mapping:
            if self._memory is None:
                fd, _, self._facts = self.client.welcome()
                self._memory = SharedMemory(self.client, fd)
            return self._memory

    @property
    def facts(self) -> Mapping[str, Any]:
        """The coordinator's numbers of workers and threads, and its engine."""
        self.memory  # noqa: B018 - waits for them
        return self._facts

    def close(self) -> None:
        """End the connection and the pool's own coordinator. May be repeated."""
        try:
            self.client.close()
        finally:
            if self._coordinator is not None:
                self._coordinator.end()


def settings_for(sock: socket.socket, coordinator: Coordinator, load: Callable[[], Settings]) -> Settings:
    """Return the settings that ``load`` reads; if they are refused, end the coordinator that was started already."""
    try:
        return load()
    except BaseException:
        sock.close()
        coordinator.end()
        raise
