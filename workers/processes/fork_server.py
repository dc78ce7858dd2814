"""The fork server: a process that does nothing but fork others, so that each starts in milliseconds.

It has one thread and has touched no OpenCL, which is what makes a fork safe, and it starts its children through
`multiprocess`. A *preloaded* one has also imported the compiler and compiled one kernel: creators forked from it compile
at once. Workers come from a fork server that never imports the compiler.

Why not `multiprocess`'s own fork server: it listens on a file in the temporary folder, which a kill -9 leaves behind; it
brings a second helper process; it sends each child a pickle; and its children keep it alive. Here the child's sockets
are passed by the kernel, the answer is a pidfd, and who loses its parent is killed by the kernel.
"""

from __future__ import annotations

import atexit
import gc
import os
import select
import signal
import socket
import sys
import time
from importlib import import_module
from typing import Any, Final

from poolrt.cachestore.portable_error import describe_exception

from ..ipc.channel import Channel, ChannelClosed, Message, pair
from ..ipc.protocol import Kind, check_message
from .parent_death_signal import detach_streams, die_with_parent, reset_signals

#: Role of a child -> the module whose ``main(socket, descriptors, options)`` it runs.
_ROLES: Final = {"worker": ".worker", "creator": ".creator", "preloaded": ".fork_server"}
#: Seconds that children get to end by themselves when the fork server closes.
_GRACE_S: Final = 0.5

#: What the process needs to run its role: values that msgpack carries.
Options = dict[str, Any]


def start_fork_server(*private: socket.socket) -> tuple[int, socket.socket]:
    """Fork a fork server from this process, which must have one thread; return its process id and the socket to it.

    ``private`` sockets stay with this process alone, so that their other ends notice its death.
    """
    ours, theirs = pair()
    parent = os.getpid()
    # An interruption from the terminal is no business of a fork server, from its first moment on.
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
        _leave(code)
    raise AssertionError  # not reached: _leave ends the process


def main(sock: socket.socket, descriptors: list[int], options: Options) -> None:
    """Run a preloaded fork server; where there is no compiler to warm up, say so and end."""
    try:
        from ..kernels.native.warm_up import warm_up

        warm_up()
    except Exception as error:  # noqa: BLE001 - a broken installation raises anything
        channel = Channel(sock)
        channel.send([Kind.BROKEN, 0, *describe_exception(error)])
        channel.close()
        return
    serve(sock, report=True)


def serve(sock: socket.socket, *, report: bool = False) -> None:
    """Start children as asked until the other end closes; then end them all. ``report`` says when it is ready to."""
    import multiprocess

    if not report:
        import_module(".worker", __package__)  # what workers need is imported once, here
    channel = Channel(sock, accepts_fds=True)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    gc.freeze()  # children share these pages as long as nobody writes to them
    try:
        if report:
            channel.send([Kind.READY, os.getpid(), len(os.listdir("/proc/self/task"))])
        while True:
            for fd, _ in poll.poll():
                if fd == wake_read:
                    os.read(wake_read, 4096)
                    multiprocess.active_children()  # joins those that have ended
                else:
                    while (message := channel.receive()) is not None:
                        _fork_child(channel, message, (wake_read, wake_write))
            while channel.queued:
                # The coordinator never waits for a fork server, so it will take this, or go.
                channel.wait(None, to_receive=False, to_send=True)
                channel.flush()
    except ChannelClosed:
        pass
    finally:
        channel.close()
        _end_children(multiprocess.active_children())


def _fork_child(channel: Channel, message: Message, private: tuple[int, ...]) -> None:
    kind = check_message(message)
    if kind is not Kind.FORK:
        raise ValueError(f"a fork server is not sent {kind.name}")
    import multiprocess

    ticket, role, options = message[1:]
    descriptors = [channel.take_fd() for _ in range(options["descriptors"])]
    try:
        child = multiprocess.get_context("fork").Process(
            target=_live,
            args=(role, descriptors, options, os.getpid(), (channel.fileno(), *private)),
            name=f"poolrt-{role}",
        )
        child.start()
        pidfd = os.pidfd_open(child.pid)
    except OSError as error:
        channel.send([Kind.FORK_FAILED, ticket, f"{role}: {error.strerror}"])
    else:
        channel.send([Kind.FORKED, ticket, child.pid], (pidfd,))
        os.close(pidfd)
    for fd in descriptors:
        os.close(fd)


def _live(role: str, descriptors: list[int], options: Options, parent: int, private: tuple[int, ...]) -> None:
    """Be a child: its first descriptor is its connection to the coordinator."""
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
        sock = socket.socket(fileno=descriptors[0])
        import_module(_ROLES[role], __package__).main(sock, descriptors[1:], options)
        code = 0
    finally:
        _leave(code)


def _leave(code: int) -> None:
    """End this process without waiting for threads that somebody has left behind."""
    kind, error, trace = sys.exc_info()
    if kind is not None and error is not None:
        sys.excepthook(kind, error, trace)
    atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(code)


def _end_children(children: list[Any]) -> None:
    until = time.monotonic() + _GRACE_S
    for child in children:
        child.join(max(0.0, until - time.monotonic()))
        if child.exitcode is None:
            child.kill()
    for child in children:
        child.join(_GRACE_S)


if __name__ == "__main__":
    # Started anew by a coordinator that has threads by now: `python -m poolrt.workers.processes.fork_server DESCRIPTOR PARENT`.
    die_with_parent(int(sys.argv[2]))
    serve(socket.socket(fileno=int(sys.argv[1])))
