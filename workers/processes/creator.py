"""The creator process: compiles primitives that nobody has, one after the other, and publishes them in the store."""

from __future__ import annotations

import os
import socket
import time
import traceback
from typing import Any

from poolrt.cachestore import CacheStore, CreationFailed

from ..ipc.channel import Channel, ChannelClosed, Message
from ..ipc.protocol import Kind, checked
from ..primitives.creation import PrimitiveCreator
from ..primitives.key import primitive_key
from ..primitives.primitive_desc import PrimitiveDesc
from ..verbose.output import set_verbose, verbose


def main(sock: socket.socket, descriptors: list[int], options: dict[str, Any]) -> None:
    """Create what is asked for until the other end closes."""
    channel = Channel(sock)
    set_verbose(options["verbose"])
    creator = PrimitiveCreator()
    with CacheStore.connect(**options["store"]) as store:
        channel.send([Kind.READY, os.getpid(), len(os.listdir("/proc/self/task"))])
        try:
            while True:
                message = channel.receive(block=True)
                if message is None:
                    continue
                if checked(message) is not Kind.CREATE:
                    raise ValueError(f"a creator is not sent kind {message[0]}")
                channel.send(_create(store, creator, message))
                while not channel.flush():
                    channel.wait(None, to_receive=False, to_send=True)
        except ChannelClosed:
            pass
        finally:
            channel.close()


def _create(store: CacheStore, creator: PrimitiveCreator, message: Message) -> Message:
    """Return the answer to a request; whatever goes wrong with one primitive is an answer too."""
    token, wire = message[1:]
    try:
        pd = PrimitiveDesc.from_wire(wire)
        begin = time.perf_counter_ns()
        outcome = store.fetch_or_create(primitive_key(pd), lambda: creator.create(pd))
        if verbose().creates:
            from ..verbose.text import described

            verbose().created(described(pd), outcome.source, time.perf_counter_ns() - begin)
    except CreationFailed as error:
        return [Kind.BROKEN, token, error.type, error.message, error.log]
    except Exception as error:  # noqa: BLE001 - the coordinator passes it on to those who wait for this primitive
        return [Kind.BROKEN, token, type(error).__name__, str(error), traceback.format_exc()]
    return [Kind.CREATED, token, outcome.value, outcome.source, outcome.seconds]
