"""The compiler pool: processes that compile for a process which imports no compiler, started when an entry is missing.

Each compiles one primitive at a time. There is at most one for each core; each ends when it has been idle for a while,
and all end with this process. If one dies while it compiles, another one tries once, since anything may have killed it;
if that dies too, the creation fails.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
import weakref
from contextlib import closing
from functools import lru_cache
from typing import Final

from poolrt.cachestore import CreationFailed

from ..implementations.primitive_desc import PrimitiveDesc
from ..ipc.channel import Channel, ChannelClosed, pair
from ..ipc.protocol import Kind, check_message
from ..ipc.spawn import start_program

#: Seconds that an idle compiler is kept, that one compilation may take and may wait for a free compiler, and that a
#: compiler gets to end by itself.
KEPT_S: Final = 10.0
LIMIT_S: Final = 600.0
GRACE_S: Final = 1.0


class CompilerPool:
    """At most ``most`` compiler processes. Any number of threads may use the pool."""

    def __init__(self, most: int) -> None:
        self._free = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._idle: list[_Compiler] = []
        alive: weakref.WeakSet[_Compiler] = weakref.WeakSet()
        self._alive = alive
        self._end_all = weakref.finalize(self, _end_all, alive, os.getpid())

    def create(self, pd: PrimitiveDesc) -> bytes:
        """Return the entry of a primitive, as `PrimitiveCreator.create` does, once a compiler is free.

        Raises CreationFailed with the compiler's type, message and log, or if two compilers died; TimeoutError after
        `LIMIT_S` seconds of compiling or of waiting for a free compiler; and OSError if no process can be started.
        """
        name = f"{pd.op.kind} ({pd.impl_name()})"
        if not self._free.acquire(timeout=LIMIT_S):
            raise TimeoutError(f"{name}: no compiler process was free within {LIMIT_S:.0f} s")
        try:
            return self._ask(pd)
        except _Died:
            try:
                return self._ask(pd)
            except _Died as died:
                what = f"{name}: two compiler processes died while compiling it; the second {died}"
                raise CreationFailed("CompilerDied", what, "") from None
        finally:
            self._free.release()

    def close(self) -> None:
        """End all compilers, busy ones too."""
        self._end_all()

    def _ask(self, pd: PrimitiveDesc) -> bytes:
        compiler = self._take_compiler()
        try:
            entry = compiler.create(pd)
        except CreationFailed:
            self._keep(compiler)
            raise
        except BaseException:
            compiler.end()  # a late answer must not go to the next request
            raise
        self._keep(compiler)
        return entry

    def _take_compiler(self) -> _Compiler:
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
    """A compiler's process has ended; the message says how."""


class _Compiler:
    """One process and the connection to it, used by one thread at a time."""

    def __init__(self) -> None:
        ours, theirs = pair()
        with closing(theirs):
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
        """End after some seconds, unless `take` comes first."""
        with self._lock:
            self._timer = threading.Timer(seconds, self._retire)
            self._timer.daemon = True
            self._timer.start()

    def take(self) -> bool:
        """Cancel the retirement; return False if the process has ended."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return not self._ended

    def hang_up(self) -> None:
        """Let the process end by itself, so that a driver can remove its files; an idle process does at once."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if not self._ended:
                self._channel.shut_down()

    def end(self) -> None:
        """End the process, by force after `GRACE_S`, and wait until it has ended. May be repeated."""
        self.hang_up()
        with self._lock:
            self._end()

    def _retire(self) -> None:
        with self._lock:
            if self._timer is not None:  # else `take` came first
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
            return  # something else in this process has reaped the child, or SIGCHLD is ignored
        self._ended = f"ended with status {code}" if code >= 0 else f"was ended by signal {-code}"


@lru_cache(maxsize=1)
def compiler_pool() -> CompilerPool:
    """Return the compiler pool of this process, of one compiler for each core that it may use."""
    return CompilerPool(len(os.sched_getaffinity(0)))


# A forked child starts compilers of its own: those that it inherits are its parent's.
os.register_at_fork(after_in_child=compiler_pool.cache_clear)


def _end_all(alive: weakref.WeakSet[_Compiler], process: int) -> None:
    if os.getpid() == process:
        for compiler in list(alive):
            compiler.hang_up()
        for compiler in list(alive):
            compiler.end()
