"""What a model needs and poolrt does not have, collected over all of its nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from poolrt.cachestore.deferred_dataclass import replace

from ..errors import UnsupportedNode, UnsupportedUse

#: Different reasons that are kept; a model may have one for each node.
_MOST_USES: Final = 200


class Unsupported:
    """The unsupported nodes of one model, and the names of the values that no node computes because of them."""

    def __init__(self) -> None:
        self._first: UnsupportedNode | None = None
        self._uses: dict[tuple[str, str], UnsupportedUse] = {}
        self._values: set[str] = set()
        self._asked: set[str] = set()
        self._first_result = ""
        self._are_computed = True

    @property
    def found(self) -> bool:
        """Whether there is an unsupported node."""
        return self._first is not None

    def add(self, error: UnsupportedNode, outputs: Iterable[str], missing: str = "") -> None:
        """Add a node by its error; ``missing`` is its operator, with its domain, if poolrt has no such operator at all."""
        named = [name for name in outputs if name]
        if self._first is None:
            self._first, self._first_result = error, named[0] if named else ""
        self._are_computed &= error.is_computed
        self._values.update(named)
        self._asked.update(error.asked)
        key = error.operator, error.reason
        use = self._uses.get(key)
        if use is not None:
            self._uses[key] = replace(use, count=use.count + 1)
        elif len(self._uses) < _MOST_USES:
            self._uses[key] = UnsupportedUse(missing or error.operator, error.reason, error.node, 1, bool(missing))

    def skips(self, inputs: Iterable[str], outputs: Iterable[str]) -> bool:
        """Return whether a node reads what no node computes; then no node computes its own results."""
        if self._first is None or self._values.isdisjoint(inputs):
            return False
        self._values.update(name for name in outputs if name)
        return True

    def raise_if_found(self) -> None:
        """Raise UnsupportedNode that names the first node and lists all reasons, if there is one."""
        first = self._first
        if first is not None:
            error = UnsupportedNode(first.node, first.operator, first.opset, first.reason, tuple(self._uses.values()))
            error.asked = tuple(sorted(self._asked))
            error.is_computed = self._are_computed
            error.stopped_at = self._first_result if self._are_computed else ""
            raise error
