"""The futures of a connection that are not done: what a pool's end, and the interpreter's, wait for."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from poolrt.cachestore.deferred_interrupts import deferred_interrupts
from poolrt.errors import PoolClosed, PoolRefused

if TYPE_CHECKING:
    from concurrent.futures import Future

    from .futures import Driver, PoolFuture

#: Seconds between checks whether the thread that resolves futures still runs.
_POLL_S: Final = 0.25
#: Seconds between looks whether callbacks of a future have returned.
_CALLBACK_S: Final = 0.01
#: So many futures of runs on rings are open before `resolve_some` looks at them.
_MANY: Final = 64


class OpenFutures:
    """Futures until they are done. ``changed`` is notified when all are.

    At the interpreter's exit they are waited for, then ``at_exit()`` is called.
    """

    def __init__(self, lock: threading.Lock, changed: threading.Condition, at_exit: Callable[[], None]) -> None:
        self._lock = lock
        self._changed = changed
        self._process = os.getpid()
        self._futures: set[Any] = set()
        #: Counts a call of a function until `forget_call`; who calls this looks afterwards whether it has ended.
        self.count_call: Final[Callable[[object], None]] = self._futures.add
        #: Waits no longer for a call of a function, as `forget`; a method of the set itself takes a third of the time.
        self.forget_call: Final[Callable[[object], None]] = self._futures.discard
        #: Those of runs on rings, which the threads that wait resolve.
        self._on_rings: set[PoolFuture[Any]] = set()
        #: At how many of those `resolve_some` looks at them next.
        self._look_at = _MANY
        #: Called once all are done; no further ones are accepted then.
        self._end: Callable[[], None] | None = None
        self._exiting = False
        #: Whether `check` may raise: an attribute, for each call of a function looks at it.
        self.refuses = False
        #: The thread that resolves futures, once it has started, and whether it runs their callbacks now.
        self.thread: threading.Thread | None = None
        self.resolving = False
        #: The threads that resolve futures of runs on rings.
        self.watchers: set[int] = set()
        self._finish = partial(_finish, weakref.ref(self), at_exit)
        atexit.register(self._finish)

    def check(self) -> None:
        """Raise PoolClosed, a RuntimeError, after `refuse` or `end_after`; a RuntimeError at the interpreter's exit."""
        if self._end is not None:
            raise PoolClosed("cannot schedule new futures after shutdown: the pool is closed")
        if self._exiting:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    def add(self, future: Future[Any]) -> None:
        """Count a future until it is done. Raises what `check` raises."""
        with self._lock:
            self.check()
            self._futures.add(future)
        future.add_done_callback(self._futures.discard)

    def count_all(self, calls: list[Any]) -> None:
        """Count calls without futures until `forget`."""
        self._futures.update(calls)
        for call in calls:
            if call.ended:
                self._futures.discard(call)

    def follow(self, future: Future[Any]) -> None:
        """Count a future until it is done, as `add`, after the last call too."""
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)

    @property
    def is_over(self) -> bool:
        """Whether all are done, and `end_if_done` has something to do."""
        return not self._futures and (self.resolving or self._end not in (None, _nothing))

    def start(self, target: Callable[[], None]) -> None:
        """Start the thread that resolves futures, with the lock held. An interrupt comes before or after it."""
        with deferred_interrupts():
            thread = threading.Thread(target=target, name="poolrt-futures", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                text = f"no thread for futures can be started: {error}"
                raise PoolRefused(f"{text}; raise the limits of processes and memory (ulimit -u, ulimit -v)") from error
            self.thread = thread

    def add_driven(self, future: PoolFuture[Any]) -> None:
        """Count a future that has a driver until `finish_driven`. Raises what `check` raises."""
        with self._lock:
            if self._end is not None or self._exiting:
                self.check()
            self._futures.add(future)
            self._on_rings.add(future)

    @property
    def driven(self) -> int:
        """The number of futures of runs on rings that are not done."""
        return len(self._on_rings)

    def resolve_some(self) -> None:
        """Resolve the futures of runs on rings that have ended if there are many, at a small cost for each.

        Guarantees: what callers have dropped, so that no thread ever waits for it, does not fill the arena.
        """
        if len(self._on_rings) >= self._look_at:
            self.resolve_ended()
            self._look_at = max(_MANY, 2 * len(self._on_rings))

    def resolve_ended(self) -> None:
        """Resolve the futures of runs on rings that have ended: the outputs of those that callers have dropped are free then."""
        for future, driver in self._driven():
            if not future.has_callbacks:  # a thread of the ring calls them
                driver.look(future)

    def want_all(self) -> None:
        """Let threads resolve the futures of runs on rings as soon as they end."""
        for future, driver in self._driven():
            driver.want(future)

    def finish_driven(self, future: PoolFuture[Any]) -> None:
        """Note that a future with a driver is done and its callbacks have returned."""
        self._on_rings.discard(future)
        self._futures.discard(future)
        if self._end is not None and not self._futures and not self.resolving:
            self.end_if_done()

    def leave_driver(self, future: Any) -> None:
        """Note that a thread of the connection resolves a future from now on. It is still counted, for an end that waits."""
        self._on_rings.discard(future)

    def forget(self, future: Any) -> None:
        """Wait no longer for a future that nothing resolves."""
        self._on_rings.discard(future)
        self._futures.discard(future)

    def all(self) -> list[Any]:
        """Return the futures that are not done, in any order."""
        with self._lock:
            return [*self._futures]

    def refuse(self) -> None:
        """Accept no further futures."""
        with self._lock:
            self.refuses = True
            self._end = self._end or _nothing

    def wait(self) -> None:
        """Wait until each future is done and its callbacks have returned. In a callback, and in a forked process, return."""
        if self._process != os.getpid() or self.is_own_thread():
            return
        while driven := self._driven():
            for future, driver in driven:
                driver.drive(future, None)
            with self._lock:
                if any(future in self._futures for future, _ in driven):
                    self._changed.wait(_CALLBACK_S)  # another thread resolves it
        with self._lock:
            while (self._futures or self.resolving) and self.thread is not None and self.thread.is_alive():
                for future in [*self._futures]:
                    if getattr(future, "is_settled", False):
                        self._futures.discard(future)  # an interrupt came after its end
                self._changed.notify_all()  # the thread may not know yet of a call that an interrupt has left
                self._changed.wait(_POLL_S)

    def end_after(self, end: Callable[[], None]) -> None:
        """Accept no further futures, and call ``end`` once all are done: now, or in the thread that resolves them."""
        driven = self._driven()
        with self._lock:
            busy = bool(driven) or (self.thread is not None and (bool(self._futures) or self.resolving))
            self.refuses = True
            self._end = end if busy else _nothing
        for future, driver in driven:
            driver.want(future)
        if not busy:
            end()

    def is_own_thread(self) -> bool:
        """Return whether the caller is a thread that resolves futures."""
        return threading.current_thread() is self.thread or threading.get_ident() in self.watchers

    def end_if_done(self) -> None:
        """Wake the threads that wait, and end if all futures are done. The thread that resolves them calls this."""
        self.resolving = False
        if self._futures:
            return
        with self._lock:
            end, self._end = self._end, self._end and _nothing
            self._changed.notify_all()
        if end is not None:
            end()

    def _driven(self) -> list[tuple[PoolFuture[Any], Driver]]:
        """Return the futures that have a driver, with it."""
        with self._lock:
            futures = [*self._on_rings]
        return [(future, driver) for future in futures if (driver := future.driver) is not None]

    def close(self) -> None:
        """Wait at the interpreter's exit no longer."""
        atexit.unregister(self._finish)


def _nothing() -> None:
    pass


def _finish(found: weakref.ref[OpenFutures], at_exit: Callable[[], None]) -> None:
    """Wait for the futures of a connection at the interpreter's exit; an interrupt ends the wait, also an earlier one."""
    futures = found()
    if futures is not None:
        futures.refuses = futures._exiting = True
        # Workers do not get a terminal's interrupt: they would keep a program for as long as their functions take.
        interrupted = getattr(sys, "last_type", None) is KeyboardInterrupt and not hasattr(sys, "ps1")
        try:
            if not interrupted:
                futures.wait()
        finally:
            at_exit()
