"""The compiler process: makes the entries that a process asks for which has, and wants, no compiler of its own."""

from __future__ import annotations

import signal
import socket
import sys
import traceback

from ..ipc.channel import Channel, ChannelClosed, Message
from ..ipc.protocol import Kind, checked
from ..primitives.creation import PrimitiveCreator
from ..primitives.primitive_desc import PrimitiveDesc
from .parent_death_signal import detach_streams


def main(sock: socket.socket) -> None:
    """Create what is asked for until the other end closes."""
    # An interruption from the terminal is meant for whoever asks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    detach_streams()
    channel, creator = Channel(sock), PrimitiveCreator()
    try:
        while True:
            message = channel.receive(block=True)
            if message is None:
                continue
            if checked(message) is not Kind.CREATE:
                raise ValueError(f"a compiler is not sent kind {message[0]}")
            channel.send(_created(creator, message))
            while not channel.flush():
                channel.wait(None, to_receive=False, to_send=True)
    except ChannelClosed:
        pass


def _created(creator: PrimitiveCreator, message: Message) -> Message:
    token, wire = message[1:]
    try:
        return [Kind.CREATED, token, creator.create(PrimitiveDesc.from_wire(wire)), "created", 0.0]
    except Exception as error:  # noqa: BLE001 - it is the answer to whoever asked
        log = getattr(error, "log", None) or traceback.format_exc()
        return [Kind.BROKEN, token, type(error).__qualname__, str(error), str(log)]


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
