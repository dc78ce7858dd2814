"""Compilers of a process that imports none: processes of their own, started when something is missing.

Each compiles one primitive at a time; there are as many as cores, each is kept for a while, and they end with this
process. One that dies while it compiles is replaced once, since anything may have killed it; where its successor dies
too, the primitive is to blame.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
import weakref
from functools import lru_cache
from typing import Final

from poolrt.cachestore import CreationFailed

from ..implementations.primitive_desc import PrimitiveDesc
from ..ipc.channel import Channel, ChannelClosed, pair
from ..ipc.protocol import Kind, check_message
from ..ipc.spawn import start_program

#: Seconds that a compiler without work is kept, that one compilation may take and be waited for to begin, and that a
#: compiler gets to end by itself.
KEPT_S: Final = 10.0
LIMIT_S: Final = 600.0
GRACE_S: Final = 1.0


class Compilers:
    """At most ``most`` compiler processes. Any number of threads may ask."""

    def __init__(self, most: int) -> None:
        self._free = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._idle: list[_Compiler] = []
        alive: weakref.WeakSet[_Compiler] = weakref.WeakSet()
        self._alive = alive
        self._end_all = weakref.finalize(self, _end_all, alive, os.getpid())

    def create(self, pd: PrimitiveDesc) -> bytes:
        """Return the entry of a primitive, as `PrimitiveCreator.create` does, once a compiler is free.

        Raises CreationFailed with the compiler's type, message and log, or telling of its death; TimeoutError after
        `LIMIT_S` seconds of compiling, or of none being free; and OSError where no process can be started.
        """
        name = f"{pd.op.kind} ({pd.impl_name()})"
        if not self._free.acquire(timeout=LIMIT_S):
            raise TimeoutError(f"{name}: no compiler was free within {LIMIT_S:.0f} s")
        try:
            return self._ask(pd)
        except _Died:
            try:
                return self._ask(pd)
            except _Died as died:
                what = f"{name}: two compilers died while they compiled it, the last {died}"
                raise CreationFailed("CompilerDied", what, "") from None
        finally:
            self._free.release()

    def close(self) -> None:
        """End all compilers, also those at work."""
        self._end_all()

    def _ask(self, pd: PrimitiveDesc) -> bytes:
        compiler = self._taken()
        try:
            entry = compiler.create(pd)
        except CreationFailed:
            self._keep(compiler)
            raise
        except BaseException:
            compiler.end()  # it may still be at work, and would answer the next one who asks
            raise
        self._keep(compiler)
        return entry

    def _taken(self) -> _Compiler:
        while True:
            with self._lock:
                found = self._idle.pop() if self._idle else None
            if found is None:
                found = _Compiler()
                self._alive.add(found)
                return found
            if found.take():
                return found

    def _keep(self, compiler: _Compiler) -> None:
        compiler.retire_after(KEPT_S)
        with self._lock:
            self._idle.append(compiler)


class _Died(Exception):
    """A compiler's process has ended; says how."""


class _Compiler:
    """One process and the connection to it; of one thread at a time."""

    def __init__(self) -> None:
        ours, theirs = pair()
        with theirs:
            try:
                self._pid = start_program("poolrt.workers.processes.creator", theirs)
                self._pidfd = os.pidfd_open(self._pid)
            except OSError:
                ours.close()
                raise
        self._channel = Channel(ours)
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._ended = ""

    def create(self, pd: PrimitiveDesc) -> bytes:
        """Have a primitive compiled. Raises CreationFailed, _Died, and TimeoutError."""
        channel, until = self._channel, time.monotonic() + LIMIT_S
        try:
            channel.send([Kind.CREATE, 0, pd.to_wire()])
            while (message := channel.receive()) is None or check_message(message) is Kind.READY:
                if not channel.wait(until - time.monotonic(), to_send=channel.queued > 0):
                    raise TimeoutError(f"{pd.op.kind} ({pd.impl_name()}): not compiled within {LIMIT_S:.0f} s")
                channel.flush()
        except ChannelClosed:
            self.end()
            raise _Died(self._ended) from None
        if check_message(message) is Kind.BROKEN:
            raise CreationFailed(*message[2:])
        entry: bytes = message[2]
        return entry

    def retire_after(self, seconds: float) -> None:
        """End after some time, unless taken before."""
        with self._lock:
            self._timer = threading.Timer(seconds, self._retire)
            self._timer.daemon = True
            self._timer.start()

    def take(self) -> bool:
        """Keep this compiler from retiring; return False where it has ended."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return not self._ended

    def hang_up(self) -> None:
        """Let the process end by itself, which an idle one does at once: a driver has files to remove."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if not self._ended:
                self._channel.shut_down()

    def end(self) -> None:
        """End the process, by force after a time of grace, and wait until it has. May be repeated."""
        self.hang_up()
        with self._lock:
            self._end()

    def _retire(self) -> None:
        with self._lock:
            if self._timer is not None:  # else it was taken at this moment
                self._end()

    def _end(self) -> None:
        if self._ended:
            return
        self._channel.close()
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        if not poll.poll(GRACE_S * 1000):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        os.close(self._pidfd)
        self._ended = "has ended"
        try:
            code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        except ChildProcessError:
            return  # this process waits for children that it does not know, or lets the kernel do it
        self._ended = f"ended with status {code}" if code >= 0 else f"was ended by signal {-code}"


@lru_cache(maxsize=1)
def compilers() -> Compilers:
    """Return the compilers of this process, as many as it may use cores."""
    return Compilers(len(os.sched_getaffinity(0)))


# What a forked child inherits is its parent's: it starts compilers of its own.
os.register_at_fork(after_in_child=compilers.cache_clear)


def _end_all(alive: weakref.WeakSet[_Compiler], process: int) -> None:
    if os.getpid() == process:
        for compiler in list(alive):
            compiler.hang_up()
        for compiler in list(alive):
            compiler.end()
