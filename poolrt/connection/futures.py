"""The futures of runs and functions: `concurrent.futures.Future`, whose `cancel` asks the coordinator or takes an entry back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from concurrent.futures._base import CANCELLED, FINISHED, PENDING, RUNNING
from typing import Any, Final, Protocol, TypeVar

from poolrt.cachestore.deferred_interrupts import deferred_interrupts
from poolrt.errors import PoolClosed, PoolError

from .own_process import own
from .releasing_future import ReleasingFuture

T = TypeVar("T")
_OPEN: Final = (PENDING, RUNNING)
#: What `threading.RLock` makes, in half of its time.
_RLock: Final = type(threading.RLock())
#: What a forked process gets for a call of its parent.
FOREIGN: Final = "this call belongs to the parent of this forked process, which gets its result: submit it again here"


class Driver(Protocol):
    """Resolves futures in the thread that waits for one, so that a result needs no other thread.

    Guarantees of its methods: none is called with a lock of a future held, except `want`, which takes no such lock.
    """

    def drive(self, future: PoolFuture[Any], deadline: float | None) -> None:
        """Return once a future is done, or at a time of `time.monotonic`; resolve it and others meanwhile."""

    def look(self, future: PoolFuture[Any]) -> None:
        """Resolve futures that have ended, and note those that have begun, without waiting."""

    def want(self, future: PoolFuture[Any]) -> None:
        """Let a thread resolve a future: it has a callback, or a thread waits for it in another way than `drive`."""


class PoolFuture(ReleasingFuture[T]):
    """A future of a run or function. It is running once a worker executes it.

    Guarantees: if `cancel` returns True, no worker has begun it or ever will. With a ``driver``, `result` and `exception` drive
    it, and `settle` resolves it, once, by one thread; ``withdraw`` is set until then.
    """

    _result: T | None = None
    _exception: BaseException | None = None
    _waiting: Collection[Any] = ()
    _done_callbacks: Collection[Callable[[Future[T]], Any]] = ()
    _made: threading.Condition | None = None
    _announced = False
    #: Withdraws the request; returns whether no worker will execute it.
    withdraw: Callable[[], bool] | None = None
    #: Ends it after so many seconds (`Deadlines`), until it is done.
    expire: Callable[[PoolFuture[Any], float], None] | None = None
    #: What resolves this future in the thread that waits for it; None if a thread of the connection does.
    driver: Driver | None = None

    def __init__(self) -> None:
        # Not the base class's: its condition takes longer to make than all else, and most futures need none.
        # What most futures never have is an attribute of the class until it is set, for the same reason.
        self._state = PENDING
        self._process = own.process
        # Of the condition too: nothing but a thread that holds it changes the state.
        self._noting = _RLock()

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        """The base class's condition, made on first use. A thread that makes it looks at the state afterwards."""
        made = self._made
        if made is None:
            # One of several threads makes it: this is one call without a step in Python.
            made = self._made = self.__dict__.setdefault("_only", threading.Condition(self._noting))
        return made

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        """The base class's list of `concurrent.futures.wait` and `as_completed`, which is read to add to it."""
        self._want()
        found: list[Any] = self.__dict__.setdefault("_waiting", [])
        return found

    def result(self, timeout: float | None = None) -> T:
        """Return the result, as the base class does."""
        if self._state in _OPEN:
            driver = self.driver
            if timeout is None and driver is not None and self._process == own.process:
                driver.drive(self, None)  # `_drive` in one step
            else:
                timeout = self._drive(timeout)
            del driver  # nor does it keep the call, which refers to this future
        if self._state == FINISHED and self._exception is None:
            return self._result  # type: ignore[return-value]
        try:
            return super().result(timeout)
        finally:
            del self  # as in the base class: a traceback keeps no future

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception, as the base class does."""
        return super().exception(self._drive(timeout))

    def done(self) -> bool:
        """Return whether the call has ended or is cancelled."""
        return self._look() not in _OPEN

    def running(self) -> bool:
        """Return whether a worker executes the call."""
        return self._look() == RUNNING

    def add_done_callback(self, fn: Callable[[Future[T]], Any]) -> None:
        """Call a function with this future once it is done, as the base class does."""
        self.__dict__.setdefault("_done_callbacks", [])
        super().add_done_callback(fn)
        self._want()

    def cancel(self) -> bool:
        """Cancel the call if no worker has begun it; return whether it is cancelled. Waits for the coordinator's answer."""
        withdraw = self.withdraw or getattr(self.driver, "take_back", None)  # a call on a ring is taken back itself
        if self._process != own.process:
            return self.cancelled()
        if self.done() or withdraw is None:
            return super().cancel()
        try:
            if withdraw():
                self.note_cancelled()
        except PoolError:
            pass  # the pool is closed or lost, which resolves the future
        return self.cancelled()

    def settle(self, result: T | None, exception: BaseException | None = None) -> None:
        """Resolve a future with a driver. If an interrupt ends this, call it again."""
        # A thread that makes the condition after this block sees the state; one that made it before is notified. If the state
        # were set outside, `concurrent.futures.wait` could count this future twice: it is done, and it reports its end.
        with self._noting:
            if self._state in _OPEN:
                self._result = result
                self._exception = exception
                self._state = FINISHED
            self.withdraw = None  # as `_let_go`
            if self.expire is not None:
                self.expire = None
            if self._announced:
                return
            if self._made is not None:
                with deferred_interrupts():  # a waiter that is told twice counts another future as done
                    for waiter in self._waiting:
                        waiter.add_result(self) if self._exception is None else waiter.add_exception(self)
                    self._made.notify_all()
                    self._announced = True
            self._announced = True
        if self._done_callbacks:
            self._invoke_callbacks()

    def settle_alone(self, result: T) -> bool:
        """Resolve a future with a driver, as `settle`, in fewer steps; False if another thread may look at it, or wait.

        May be repeated.
        """
        noting = self._noting
        # A thread that waits for this future, or adds a callback, makes the condition first, and uses this lock.
        if not noting.acquire(False):
            return False
        try:
            if self._made is not None:
                return False
            if self._state in _OPEN:
                self._result = result
                self._state = FINISHED
            self._announced = True
            self.withdraw = self.driver = None
            if self.expire is not None:
                self.expire = None
        finally:
            noting.release()
        return True

    @property
    def is_settled(self) -> bool:
        """Whether this future is done, as far as it is known."""
        return self._state not in _OPEN

    @property
    def has_callbacks(self) -> bool:
        """Whether resolving this future calls code of the user."""
        return bool(self._done_callbacks)

    def set_result(self, result: T) -> None:
        """Resolve this future, and keep nothing of the request: a result may be memory of the arena."""
        self._let_go()
        super().set_result(result)

    def set_exception(self, exception: BaseException | None) -> None:
        """Resolve this future, and keep nothing of the request."""
        self._let_go()
        super().set_exception(exception)

    def note_cancelled(self) -> None:
        """Cancel this future, whose request is withdrawn. May be repeated."""
        with self._noting:
            self._let_go()
            self.driver = None
            first = self._state == PENDING
            if first:
                self._state = CANCELLED
            if self._state == CANCELLED:
                self.set_running_or_notify_cancel()  # sets the next state
                if self._made is not None:
                    self._made.notify_all()
        if first:
            # Without a lock held: a callback may wait for a thread that asks this future.
            self._invoke_callbacks()

    def _let_go(self) -> None:
        """Refer to the call no more, which is over."""
        self.withdraw = None
        if self.expire is not None:
            self.expire = None

    def _drive(self, timeout: float | None) -> float | None:
        """Drive a future that is not done; return the rest of a timeout in seconds."""
        if self._state not in _OPEN:
            return timeout
        self._check_process()
        driver = self.driver
        if driver is None:
            return timeout
        deadline = None if timeout is None else time.monotonic() + timeout
        driver.drive(self, deadline)
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def _look(self) -> str:
        """Return the present state."""
        driver = self.driver  # read once: the thread that resolves this future drops it
        if driver is not None and self._state in _OPEN and self._process == own.process:
            driver.look(self)
        return self._state

    def _want(self) -> None:
        if self._state in _OPEN:
            self._check_process()
            driver = self.driver
            if driver is not None:
                driver.want(self)

    def _check_process(self) -> None:
        """Raise PoolClosed in a forked process: nothing resolves this future there."""
        if self._process != own.process:
            raise PoolClosed(FOREIGN)

    def note_begun(self) -> None:
        """Set this future running, if no thread has resolved or cancelled it."""
        with self._noting:
            if self._state == PENDING:
                self._state = RUNNING


def _share_names() -> None:
    """Let all futures share one table of the names of their attributes: a class has those that its first objects have.

    A program may make many futures before one ends. Each end would make a table of its own, which takes 0.3 us.
    """
    first: PoolFuture[None] = PoolFuture()
    first.driver = first.withdraw = None
    first.settle(None)


_share_names()
