"""What the families of operations share: the graph's contents so far."""

from __future__ import annotations

from ..assembly import Assembly


class Family:
    """Base of the families. Every operation returns a `Value` and raises GraphError naming node and argument."""

    _assembly: Assembly
