"""The process that compiles: it creates primitives, one after the other, and publishes them where it has a store.

A coordinator's creators are forked from its preloaded fork server and have the pool's store. A process without a pool
starts creators as programs (`compiler_pool`); those have no store, and return the entry to the process that asked.
"""

from __future__ import annotations

import _socket
import faulthandler
import os
import signal
import sys
import time
import warnings
from typing import Any

from poolrt.cachestore import CacheStore, CreationFailed
from poolrt.cachestore.errors import NothingKept
from poolrt.cachestore.portable_error import describe_exception

from ..implementations.primitive_desc import PrimitiveDesc
from ..ipc.channel import Channel, ChannelClosed, Message
from ..ipc.protocol import Kind, check_message
from ..primitives.creation import PrimitiveCreator
from ..primitives.key import primitive_key
from ..verbose.output import set_verbose, verbose
from .parent_death_signal import detach_streams


def main(sock: _socket.socket, descriptors: list[int], options: dict[str, Any]) -> None:
    """Create primitives for a coordinator until it closes the connection."""
    set_verbose(options["verbose"])
    warnings.simplefilter("ignore", NothingKept)  # the coordinator prints it
    with CacheStore.connect(**options["store"]) as store:
        serve(Channel(sock), store)


def serve(channel: Channel, store: CacheStore | None) -> None:
    """Create what the other end asks for until it closes."""
    creator = PrimitiveCreator()
    try:
        channel.send([Kind.READY, os.getpid(), len(os.listdir("/proc/self/task"))])
        while True:
            message = channel.receive(block=True)
            if message is None:
                continue
            if check_message(message) is not Kind.CREATE:
                raise ValueError(f"a creator accepts CREATE only, got {message[0]}")
            channel.send(_create(store, creator, message))
            while not channel.flush():
                channel.wait(None, to_receive=False, to_send=True)
    except ChannelClosed:
        pass
    finally:
        channel.close()


def _create(store: CacheStore | None, creator: PrimitiveCreator, message: Message) -> Message:
    """Return the answer to a request; an error of one primitive is an answer too."""
    token, wire = message[1:]
    try:
        pd = PrimitiveDesc.from_wire(wire)
        if store is None:
            return [Kind.CREATED, token, creator.create(pd), "created", 0.0]
        begin = time.perf_counter_ns()
        outcome = store.fetch_or_create(primitive_key(pd), lambda: creator.create(pd))
        if verbose().creates:
            from ..verbose.text import describe_primitive

            verbose().created(describe_primitive(pd), outcome.source, time.perf_counter_ns() - begin)
    except CreationFailed as error:
        return [Kind.BROKEN, token, error.type, error.message, error.log]
    except Exception as error:  # noqa: BLE001 - the answer for the process that asked
        return [Kind.BROKEN, token, *describe_exception(error)]
    return [Kind.CREATED, token, outcome.value, outcome.source, outcome.seconds]


if __name__ == "__main__":
    # The asking process handles an interruption from the terminal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable(2)
    detach_streams()
    serve(Channel(_socket.socket(fileno=int(sys.argv[1]))), None)
