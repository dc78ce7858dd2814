"""The session of a pool: its settings, and its connection, which is opened again after a fork or a server's restart."""

from __future__ import annotations

import _socket
import _thread
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from poolrt.errors import CoordinatorLoss, coordinator_lost
from poolrt.memory.shared_memory import SharedMemory
from poolrt.settings import Settings

from .client import Client
from .deadlines import Deadlines
from .launch import Coordinator, start_coordinator
from .link import Link
from .open_futures import OpenFutures

T = TypeVar("T")
#: Seconds between the first two attempts to connect, doubled up to the longest.
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.25


class Session:
    """A session over ``sock``: with the pool's own ``coordinator``, or with the server that listens at ``path``.

    In a forked process the first call opens a connection of its own: to the same server, or to a coordinator that it
    starts. If a server is lost, the next call connects to the one that listens at the path by then; it waits
    ``reconnect_timeout_s`` seconds for it, counted once for each loss.
    """

    def __init__(
        self, sock: _socket.socket, settings: Settings, coordinator: Coordinator | None, path: str = ""
    ) -> None:
        """Greet the coordinator; the pool's own coordinator gets its configuration first."""
        self.settings = settings
        self.path = path
        #: Of futures of runs.
        self.deadlines = Deadlines()
        self._closed = False
        #: Held by the thread that opens a connection; an RLock, so that a signal's handler may use the session too.
        self._opening = threading.RLock()
        #: When the first call noticed that the connection has ended; 0 while it has not.
        self._missed_at = 0.0
        self._link = Link(sock, settings, coordinator, settings.start_timeout_s)
        #: The present connection, which ends when this session is dropped: with its last future.
        self._ends = [self._link]
        weakref.finalize(self, _end_dropped, self._ends).atexit = False
        #: Connections that were lost, until no thread uses their sockets.
        self._former: list[Link] = []
        this: weakref.ref[Session] = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _leave_to_parent(this))

    @property
    def link(self) -> Link:
        """The connection; another one if it has ended and can be opened again. Raises CoordinatorLost."""
        link = self._link
        return self._reopen(link, None) if link.client.closed else link

    @property
    def open_futures(self) -> OpenFutures:
        """The futures of the present connection that are not done; no other one is opened for them."""
        return self._link.client.open_futures

    @property
    def client(self) -> Client:
        """The client of `link`."""
        return self.link.client

    @property
    def memory(self) -> SharedMemory:
        """The arena of `link`; the first use waits until the coordinator has started. Raises CoordinatorLost."""
        return self.link.memory

    @property
    def facts(self) -> Mapping[str, Any]:
        """The coordinator's numbers of workers and threads, and its engine."""
        return self.link.facts

    def repeat(self, act: Callable[[Link], T], deadline: float | None = None, repeated: int = 0) -> T:
        """Return ``act(link)``; repeat it on another connection if the server exits meanwhile, ``retries`` times at most.

        ``repeated``: as often, it was lost before.

        ``act`` must have no effect beyond its result. Raises what it raises, and TimeoutError if there is no connection
        by ``deadline``.
        """
        while True:
            link = self._link
            if link.client.closed:
                link = self._reopen(link, deadline)
            try:
                return act(link)
            except CoordinatorLoss:
                if repeated == self.settings.retries or not self.may_repeat(link):
                    raise
                repeated += 1

    def find_open(self, client: Client) -> Link | None:
        """Return the present connection if it is a client's and has not ended, else None."""
        link = self._link
        return link if link.client is client and client.lost is None else None

    def may_repeat_after(self, error: BaseException, link: Link) -> bool:
        """Return whether work that has failed with an error may be done again because its connection was lost."""
        return isinstance(error, CoordinatorLoss) and self.settings.retries > 0 and self.may_repeat(link)

    def may_repeat(self, link: Link) -> bool:
        """Return whether work that was lost with a connection may be done again: its server has exited."""
        return not self._closed and link.client.closed and self._reconnects and link.has_exited()

    def close(self) -> None:
        """End the connection and the pool's own coordinator. May be repeated."""
        self._closed = True
        for link in (*self._former, self._link):
            link.close()

    @property
    def _reconnects(self) -> bool:
        return self.path != "" and self.settings.reconnect_timeout_s > 0

    def _reopen(self, link: Link, deadline: float | None) -> Link:
        """Return the connection that replaces ``link``, or ``link`` if none does: its calls then raise why it has ended."""
        client = link.client
        if self._closed or not (client.inherited or (self._reconnects and isinstance(client.lost, CoordinatorLoss))):
            return link
        limit_s = self.settings.reconnect_timeout_s
        pause_s = _FIRST_PAUSE_S
        while True:
            with self._opening:
                if self._link is not link or self._closed:
                    return self._link
                self._missed_at = self._missed_at or time.monotonic()
                until = self._missed_at + limit_s
                if deadline is not None:
                    until = min(until, deadline)
                try:
                    self._link = self._ends[0] = opened = self._open(until)
                except CoordinatorLoss as error:
                    failure = error
                else:
                    if not client.inherited:
                        self._report(client)
                    self._missed_at = 0.0
                    self._former = [each for each in (*self._former, link) if not each.client.dispose()]
                    self._close_if_closed(opened)
                    return opened
            if not self.path:
                raise failure
            if time.monotonic() >= until:
                if deadline is not None and deadline == until:
                    raise TimeoutError("the coordinator did not answer within the timeout")
                reason = "" if client.inherited else f"{client.lost}; "
                text = f"{reason}within {limit_s:g} s (the setting reconnect_timeout_s) no connection could be made: {failure}"
                raise coordinator_lost(text) from failure
            time.sleep(max(0.0, min(pause_s, until - time.monotonic())))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _open(self, until: float) -> Link:
        """Return a new connection. Raises CoordinatorLost, also if the server has not answered by ``until``."""
        settings = self.settings
        if not self.path:
            try:
                sock, coordinator = start_coordinator()
            except OSError as error:
                raise coordinator_lost(f"the coordinator cannot be started: {error}") from error
            return Link(sock, settings, coordinator, settings.start_timeout_s)
        from .server import connect_socket

        wait_s = min(settings.start_timeout_s, max(1.0, until - time.monotonic()))
        link = Link(connect_socket(self.path), settings, None, wait_s)
        try:
            link.memory  # noqa: B018 - waits for the server
        except BaseException:
            link.close()
            raise
        return link

    def _close_if_closed(self, opened: Link) -> None:
        """Close a connection that was opened while another thread closed the session."""
        if self._closed:
            opened.close()

    def _report(self, lost: Client) -> None:
        """Write one line about a server that was lost and the connection to its successor."""
        import logging

        text = "poolrt: %s; connected to the server at %s again after %.1f s"
        logging.getLogger("poolrt").warning(text, lost.lost, self.path, time.monotonic() - self._missed_at)


def settings_for(sock: _socket.socket, coordinator: Coordinator, load: Callable[[], Settings]) -> Settings:
    """Return the settings that ``load`` reads; if they are refused, end the coordinator that was started already."""
    try:
        return load()
    except BaseException:
        sock.close()
        coordinator.end()
        raise


def _end_dropped(links: list[Link]) -> None:
    """End the connection of a session that is no longer referred to. A finalizer: it must not wait."""
    link = links[0]
    if not link.client.closed:
        try:
            _thread.start_new_thread(link.client.open_futures.end_after, (link.close,))
        except RuntimeError:
            pass  # no thread can be started: the end of this process ends the connection


def _leave_to_parent(session: weakref.ref[Session]) -> None:
    """Give up a forked process's copy of the connection, which is the parent's; locks may be those of its threads."""
    found = session()
    if found is not None:
        found._opening = threading.RLock()
        found._missed_at = 0.0
        for link in (*found._former, found._link):
            link.client.leave_to_parent()
