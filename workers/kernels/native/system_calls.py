"""System calls on descriptors for kernels: to wait for several, and to send and receive bells. They return negative errors."""

from __future__ import annotations

from typing import Any, Final

from .atomics import system_call
from .compiler import types
from .compiler.language import intrinsic
from .vec import I64, Builder, Value

_POLL: Final = 7  # the numbers of the system calls, x86-64
_SENDTO: Final = 44
_RECVFROM: Final = 45
#: MSG_DONTWAIT and MSG_NOSIGNAL.
AT_ONCE: Final = 0x40
_NO_SIGNAL: Final = 0x4000
#: Errors that kernels tell apart.
INTERRUPTED: Final = -4
AGAIN: Final = -11


@intrinsic
def poll(_: Any, address: types.Integer, count: types.Integer, milliseconds: types.Integer) -> Any:
    """Wait until one of some descriptors, as poll(2) takes them, is ready; return how many are. Negative time: for ever."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        zero = I64(0)
        return system_call(b, I64(_POLL), a[0], a[1], a[2], zero, zero, zero)

    return types.int64(types.int64, types.int64, types.int64), emit


@intrinsic
def ring_bell(_: Any, socket: types.Integer, address: types.Integer) -> Any:
    """Send the byte at an address to a connected socket without waiting; return the number of bytes sent."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        zero = I64(0)
        return system_call(b, I64(_SENDTO), a[0], a[1], I64(1), I64(AT_ONCE | _NO_SIGNAL), zero, zero)

    return types.int64(types.int64, types.int64), emit


@intrinsic
def receive_bells(
    _: Any, socket: types.Integer, address: types.Integer, nbytes: types.Integer, flags: types.Integer
) -> Any:
    """Receive bytes from a connected socket, with flags of recv(2); return their number, 0 if the peer has left."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        zero = I64(0)
        return system_call(b, I64(_RECVFROM), a[0], a[1], a[2], a[3], zero, zero)

    return types.int64(types.int64, types.int64, types.int64, types.int64), emit
