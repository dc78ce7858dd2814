"""The fork server: a process that only forks others, so that each starts in milliseconds.

It has one thread and has not used OpenCL, which makes a fork safe. A *preloaded* fork server has also imported the
compiler and compiled one kernel: creators forked from it compile at once. Workers are forked from one that never imports
the compiler.

Why not the fork server of `multiprocessing`: it listens on a file in the temporary folder, which a kill -9 leaves behind;
it brings a second helper process; it sends each child a pickle; and its children keep it alive. Here the child's sockets
are passed by the kernel, the answer is a pidfd, and the kernel kills a child whose parent exits.
"""

from __future__ import annotations

import _socket
import atexit
import faulthandler
import gc
import os
import select
import signal
import sys
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import Any, Final, NoReturn

from poolrt.cachestore.errors import StoreError
from poolrt.cachestore.portable_error import describe_exception

from ..ipc.channel import Channel, ChannelClosed, Message, pair
from ..ipc.protocol import Kind, check_message
from .children import Children
from .parent_death_signal import detach_streams, die_with_parent, reset_signals

#: Role of a child -> the module whose ``main(socket, descriptors, options)`` it runs.
_ROLES: Final = {"worker": ".worker", "creator": ".creator", "preloaded": ".fork_server"}
#: What each creator needs, and would import itself.
_CREATORS: Final = (
    ".creator",
    "poolrt.cachestore.redis.link",
    "poolrt.cachestore.single_creator",
    "redis",
)
#: Seconds that children may take to exit by themselves when the fork server closes.
_GRACE_S: Final = 0.5
#: Milliseconds for which a child that has exited stays a zombie: the coordinator reads from it how it has ended.
_REAP_MS: Final = 200

#: The options of a role: values that msgpack carries.
Options = dict[str, Any]


def start_fork_server(*private: _socket.socket) -> tuple[int, _socket.socket]:
    """Fork a fork server from this process, which must have one thread; return its process id and the socket to it.

    ``private`` sockets are closed in the fork server, so that their other ends notice the exit of this process.
    """
    ours, theirs = pair()
    parent = os.getpid()
    # A fork server ignores interruptions from the terminal, from its first instruction on.
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, held)
    if pid:
        theirs.close()
        return pid, ours
    code = 1
    try:
        for sock in (ours, *private):
            sock.close()
        die_with_parent(parent)
        serve(theirs)
        code = 0
    finally:
        _exit_process(code, "fork server")


def main(sock: _socket.socket, descriptors: list[int], options: Options) -> None:
    """Run a preloaded fork server; if the compiler cannot be imported, report that and exit."""
    try:
        from ..kernels.native.warm_up import warm_up

        warm_up()
        for name in _CREATORS:
            import_module(name, __package__)
    except Exception as error:  # noqa: BLE001 - a broken installation raises anything
        channel = Channel(sock)
        channel.send([Kind.BROKEN, 0, *describe_exception(error)])
        channel.close()
        return
    serve(sock, report=True)


def serve(sock: _socket.socket, *, report: bool = False) -> None:
    """Fork children on request until the other end closes; then end them. With ``report``, send READY first."""
    if not report:
        import_module(".worker", __package__)  # import the modules of workers once, here
    channel = Channel(sock, accepts_fds=True)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    children = Children()
    unreaped = False
    gc.freeze()  # children share these pages until one writes to them
    try:
        if report:
            channel.send([Kind.READY, os.getpid(), len(os.listdir("/proc/self/task"))])
        while True:
            events = poll.poll(_REAP_MS if unreaped else None)
            if not events:
                children.reap()
                unreaped = False
            for fd, _ in events:
                if fd == wake_read:
                    os.read(wake_read, 4096)
                    unreaped = True
                    if _has_stopped_child():
                        channel.send([Kind.STOPPED])
                else:
                    while (message := channel.receive()) is not None:
                        _fork_child(children, channel, message, (wake_read, wake_write))
            while channel.queued:
                # The coordinator never waits for a fork server, so it reads this, or closes the connection.
                channel.wait(None, to_receive=False, to_send=True)
                channel.flush()
    except ChannelClosed:
        pass
    finally:
        channel.close()
        if children.end(_GRACE_S):
            # A worker that is killed cannot remove its folder of PoCL, and no other process may ever look for it.
            from ..engines.pocl import sweep_caches

            sweep_caches()


def _has_stopped_child() -> bool:
    """Return whether a signal has stopped a child since the last call; it may go on by now."""
    found = False
    try:
        while os.waitid(os.P_ALL, 0, os.WSTOPPED | os.WNOHANG) is not None:
            found = True
    except ChildProcessError:
        pass  # there is no child
    return found


def _fork_child(children: Children, channel: Channel, message: Message, private: tuple[int, ...]) -> None:
    kind = check_message(message)
    if kind is not Kind.FORK:
        raise ValueError(f"a fork server accepts FORK only, got {kind.name}")
    ticket, role, options = message[1:]
    descriptors = [channel.take_fd() for _ in range(options["descriptors"])]
    try:
        inherited = (channel.fileno(), *private)
        pid = children.fork(partial(_run_role, role, descriptors, options, os.getpid(), inherited))
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        channel.send([Kind.FORK_FAILED, ticket, f"forking a {role} failed: {error.strerror}"])
    else:
        channel.send([Kind.FORKED, ticket, pid], (pidfd,))
        os.close(pidfd)
    for fd in descriptors:
        os.close(fd)


def _run_role(role: str, descriptors: list[int], options: Options, parent: int, private: tuple[int, ...]) -> NoReturn:
    """Run a child's role: its first descriptor is its connection to the coordinator."""
    code = 1
    try:
        die_with_parent(parent)
        reset_signals()
        atexit._clear()
        for fd in private:
            os.close(fd)
        detach_streams()
        # Thread pools of libraries read these when they are loaded, which is later.
        os.environ.update(options["environment"])
        sock = _socket.socket(fileno=descriptors[0])
        import_module(_ROLES[role], __package__).main(sock, descriptors[1:], options)
        code = 0
    finally:
        _exit_process(code, role)


def _exit_process(code: int, role: str) -> NoReturn:
    """Exit without waiting for threads that are still running.

    What the system or the store refuses is one line, as all lines of a pool are. Anything else is a bug, with its stack.
    """
    kind, error, trace = sys.exc_info()
    if isinstance(error, OSError | MemoryError | StoreError):
        text = " ".join(f"{error}".split())
        place = _place_of(trace)
        print(f"poolrt: {role} {os.getpid()} cannot go on: {type(error).__name__}: {text} ({place})", file=sys.stderr)
    elif kind is not None and error is not None:
        sys.excepthook(kind, error, trace)
    atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(code)


def _place_of(trace: TracebackType | None) -> str:
    """Return the file and line that have raised an error."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"


if __name__ == "__main__":
    # A coordinator that has threads starts this program: `python -m poolrt.workers.processes.fork_server DESCRIPTOR PARENT`.
    faulthandler.enable(2)
    die_with_parent(int(sys.argv[2]))
    serve(_socket.socket(fileno=int(sys.argv[1])))
