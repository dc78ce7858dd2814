"""The results of look-ups: a payload, its source, and what its creation took."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from .deferred_namedtuple import NamedTuple
from .key import Key

if TYPE_CHECKING:
    from .single_creator import Source

#: Returns the payload of a key if the process can put it together from prebuilt parts, without a creator; else None.
Assemble: TypeAlias = Callable[[Key], "bytes | None"]


class Found(NamedTuple):
    """A payload and its tier: "memory", "files", "prebuilt" or "redis"."""

    value: bytes
    source: Source


class Outcome(NamedTuple):
    """A payload, where it came from, the seconds that the call took, and those that the creation took.

    `source` is "memory", "files", "prebuilt", "redis", "waited" (for another creator) or "created"; a caller may have others of
    its own.
    """

    value: bytes
    source: str
    seconds: float
    creation_s: float = 0.0
