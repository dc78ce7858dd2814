"""The shapes of Redis's replies. `RedisConnection` applies one to each reply before anything uses it.

A *shape* returns the value of a reply or raises MalformedReply: the connection has damaged the reply, or another program has
written to the namespace's keys.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

from poolrt.cachestore.key import is_digest

_RUN_ID: Final = re.compile(rb"[0-9a-f]{16}")

T = TypeVar("T")
Shape: TypeAlias = Callable[[Any], T]


class MalformedReply(Exception):
    """A reply does not have its shape. Raised by shapes; it leaves `RedisConnection` as StoreUnavailable."""


def refuse(expected: str, reply: object) -> NoReturn:
    """Raise MalformedReply."""
    raise MalformedReply(f"expected {expected}, got {f'{reply!r:.60}'}")


def unused(reply: Any) -> None:
    """Accept the reply of a command that is sent for its effect."""


def integer(reply: Any) -> int:
    """Return an integer of 64 bits, which Redis keeps as digits and scripts return as a number."""
    found = reply if type(reply) is int else 1 << 63
    if type(reply) is bytes and len(reply) <= 20 and reply.removeprefix(b"-").isdigit():
        found = int(reply)
    if not -(1 << 63) <= found < 1 << 63:
        refuse("an integer", reply)
    return found


def count(reply: Any) -> int:
    """Return a count, 0 for a missing one."""
    return 0 if reply is None else integer(reply)


def flag(reply: Any) -> bool:
    """Return whether a reply is 1, and not 0."""
    if type(reply) is int and reply in (0, 1):
        return reply == 1
    refuse("0 or 1", reply)


def score(reply: Any) -> float:
    """Return the score of a member of a sorted set."""
    try:
        found = float(reply)
    except (ValueError, TypeError):
        found = math.nan
    if type(reply) is not bytes or not math.isfinite(found):
        refuse("a score", reply)
    return found


def blob(reply: Any) -> bytes:
    """Return bytes."""
    if type(reply) is not bytes:
        refuse("bytes", reply)
    return reply


def run_id(reply: Any) -> str:
    """Return the name that a process gave to Redis's data, 16 hexadecimal digits."""
    if not _RUN_ID.fullmatch(blob(reply)):
        refuse("a run id", reply)
    return blob(reply).decode("ascii")


def value(reply: Any) -> bytes | None:
    """Return bytes, or None for a missing value."""
    return None if reply is None else blob(reply)


def items(reply: Any, least: int = 0) -> list[Any]:
    """Return a list of at least so many items."""
    if type(reply) is not list or len(reply) < least:
        refuse(f"a list of {least} items or more", reply)
    return reply


def list_of(shape: Shape[T], length: int | None = None) -> Shape[list[T]]:
    """Return the shape of a list whose items have a shape, of a length if that is given."""

    def check(reply: Any) -> list[T]:
        found = items(reply)
        if length is not None and len(found) != length:
            refuse(f"{length} items", reply)
        return [shape(item) for item in found]

    return check


def digest_list(reply: Any) -> list[str]:
    """Return the digests in a list, and nothing else in it, since digests become file names."""
    texts = (blob(item).decode("ascii", "replace") for item in items(reply))
    return [text for text in texts if is_digest(text)]
