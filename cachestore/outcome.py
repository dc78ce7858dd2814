"""The results of look-ups: a payload, its source, and what its creation took."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .single_creator import Source


class Found(NamedTuple):
    """A payload and its tier: "memory", "files" or "redis"."""

    value: bytes
    source: Source


class Outcome(NamedTuple):
    """A payload, where it came from, the seconds that the call took, and those that the creation took.

    `source` is "memory", "files", "redis", "waited" (for another creator) or "created"; a caller may have others of its own.
    """

    value: bytes
    source: str
    seconds: float
    creation_s: float = 0.0
