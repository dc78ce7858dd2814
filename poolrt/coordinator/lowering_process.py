"""Lowering of a large graph in a process of its own, so that the coordinator has neither its memory nor its work.

`python -m poolrt.coordinator.lowering_process DESCRIPTOR PARENT` answers one request and exits. The kernel ends it with the
thread that has started it.
"""

from __future__ import annotations

import _socket
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

from poolrt.cachestore import Key
from poolrt.cachestore.portable_error import describe_exception
from poolrt.errors import GraphRefused, PoolError
from poolrt.workers.desc.codec import decode, encode
from poolrt.workers.ipc.bounded_decoding import Payload
from poolrt.workers.ipc.channel import Channel, ChannelError, pair
from poolrt.workers.ipc.spawn import start_program
from poolrt.workers.processes.parent_death_signal import die_with_parent, reset_signals

from .exits import describe_signal
from .instructions import LoweredGraph
from .lowering import Lowered, LoweringRequest, lower_here

#: Processes that try to lower one graph.
TRIES: Final = 3
#: Seconds that a process may take: the largest graphs take some seconds on a machine that is not busy.
LIMIT_S: Final = 120.0
#: Seconds between two looks at whether the answer is still wanted.
_LOOK_S: Final = 0.2


def lower_in_process(request: LoweringRequest, data: bytes | Payload, is_stopped: Callable[[], bool]) -> Lowered:
    """Lower a graph in a new process, and wait for it until ``is_stopped`` returns True.

    If the process is ended, another one tries. Raises GraphRefused, and PoolError if `TRIES` processes were ended, one took
    longer than `LIMIT_S`, or the answer is not wanted any more; OSError if none can be started.
    """
    answer, ending = _try(request, data, is_stopped)
    for _ in range(TRIES - 1):
        if answer is None:
            answer, ending = _try(request, data, is_stopped)
    if answer is None:
        text = f"{TRIES} processes that lowered it were ended, the last one by {ending}"
        raise PoolError(f"graph {request.name!r}: {text}")
    kind, *found = answer
    if kind == "refused":
        raise GraphRefused(found[0])
    if kind == "failed":
        raise PoolError(f"internal error: {found[0]}: {found[1]}")
    return Lowered(decode(LoweredGraph, found[1]), tuple(map(Key.from_canonical, found[0])))


def _try(
    request: LoweringRequest, data: bytes | Payload, is_stopped: Callable[[], bool]
) -> tuple[list[Any] | None, str]:
    """Return the answer of a new process, or None and how the process has ended."""
    ours, theirs = pair()
    channel = Channel(ours)
    try:
        with closing(theirs):
            pid = start_program("poolrt.coordinator.lowering_process", theirs, str(os.getpid()))
        try:
            answer = _ask(channel, request, data, is_stopped)
        finally:
            channel.close()
            os.kill(pid, signal.SIGKILL)  # it has nothing to clean up
            status = os.waitpid(pid, 0)[1]
    finally:
        channel.close()
    return answer, describe_signal(os.WTERMSIG(status), pid) if os.WIFSIGNALED(status) else f"status {status >> 8}"


def _ask(
    channel: Channel, request: LoweringRequest, data: bytes | Payload, is_stopped: Callable[[], bool]
) -> list[Any] | None:
    """Return the answer of a process, None if it exits without one. Raises PoolError."""
    until = time.monotonic() + LIMIT_S
    try:
        channel.send([encode(request), data])
        while not is_stopped():
            channel.flush()
            answer = channel.receive()
            if answer is not None:
                return answer
            if time.monotonic() > until:
                raise PoolError(f"graph {request.name!r} was not lowered within {LIMIT_S:g} s")
            channel.wait(_LOOK_S, to_send=channel.queued > 0)
    except ChannelError:
        return None
    raise PoolError("the coordinator has stopped")


def _answer(message: list[Any]) -> list[Any]:
    try:
        lowered = lower_here(decode(LoweringRequest, message[0]), message[1])
    except GraphRefused as error:
        return ["refused", str(error)]
    except Exception as error:  # noqa: BLE001 - the error belongs to one client, which gets it
        return ["failed", *describe_exception(error)[:2]]
    return ["lowered", [key.canonical for key in lowered.keys], encode(lowered.graph)]


def main(sock: _socket.socket, parent: int) -> None:
    """Answer one request."""
    reset_signals()
    die_with_parent(parent)
    channel = Channel(sock)
    try:
        message = channel.receive(block=True)
        if message is not None:
            channel.send(_answer(message))
            while not channel.flush():
                channel.wait(None, to_receive=False, to_send=True)
            channel.wait(None)  # until the other end has read it and closes
    except ChannelError:
        pass  # the coordinator does not wait any more


if __name__ == "__main__":
    main(_socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
