"""Which elements share a mean, and which a scale, in the row-major numbers of a tensor.

A table of seven int64 defines them: ``length, run, skip, rows, period, channels, reach``. Row r has the elements
``i // run * skip + r * run + i % run`` for i below length; element e is of row ``e // run % rows`` and of channel
``e // period % channels``, of which there are ``reach`` elements.
"""

from __future__ import annotations

from .scalars import read_s64


def length(rows: int) -> int:
    """Return how many elements share a mean."""
    return read_s64(rows)


def numbered(rows: int, row: int, index: int) -> int:
    """Return the number of an element of a row."""
    run = read_s64(rows + 8)
    outer = index // run
    return outer * read_s64(rows + 16) + row * run + index - outer * run


def row_of(rows: int, number: int) -> int:
    """Return the row of an element."""
    return number // read_s64(rows + 8) % read_s64(rows + 24)


def channel_of(rows: int, number: int) -> int:
    """Return the channel of an element."""
    return number // read_s64(rows + 32) % read_s64(rows + 40)


def channel_length(rows: int) -> int:
    """Return how many elements share a scale."""
    return read_s64(rows + 48)


def channel_numbered(rows: int, channel: int, index: int) -> int:
    """Return the number of an element of a channel."""
    period = read_s64(rows + 32)
    outer = index // period
    return (outer * read_s64(rows + 40) + channel) * period + index - outer * period
