"""Errors about graphs and models."""

from __future__ import annotations

from typing import Final

from poolrt.cachestore.deferred_dataclass import dataclass

#: Most characters of a message about a file: names in a file may have any length.
_MOST_CHARACTERS: Final = 1000


class GraphError(ValueError):
    """A graph cannot be built. The message names the operation, node and argument, and the expected value."""


class LoweringError(GraphError):
    """No implementation supports a node, or memory does not suffice. Raised by `lower`; names node and reason."""


class ModelError(GraphError):
    """A model file is missing, malformed or needs an argument that was not given. Raised by `poolrt.load_onnx`.

    The message is one line of printable characters, also if names in the file are not. ``is_computed`` says that a node reads
    a size or a value that only a run knows, ``stopped_at`` is then the first result of the model's node for which the import
    ended, or empty.
    """

    is_computed: bool = False
    stopped_at: str = ""

    def __str__(self) -> str:
        return one_line(super().__str__())


@dataclass(frozen=True, slots=True)
class UnsupportedUse:
    """Nodes of a model that poolrt does not support for one reason: their operator, their number, the first one's name.

    ``missing`` says whether poolrt has no such operator at all.
    """

    operator: str
    reason: str
    node: str
    count: int = 1
    missing: bool = False


class UnsupportedNode(ModelError):
    """A model uses operators, or options of them, that poolrt does not support. Raised by `poolrt.load_onnx`.

    ``node`` is the first such node's name, ``operator`` its type, ``opset`` the version of its operator set, ``reason`` the
    reason. ``uses`` holds all that is unsupported, as far as it can be known: a node is left out if its operator exists and it
    reads the result of an unsupported one. ``asked`` are inputs that have to be given while loading (``values=``).
    """

    def __init__(
        self, node: str, operator: str, opset: int, reason: str, uses: tuple[UnsupportedUse, ...] = ()
    ) -> None:
        super().__init__(node, operator, opset, reason, uses)
        self.node = node
        self.operator = operator
        self.opset = opset
        self.reason = reason
        self.uses = uses
        self.asked: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"node {self.node!r} ({self.operator}, opset {self.opset}): {self.reason}"]
        missing = [use for use in self.uses if use.missing]
        if len(missing) > 1:
            parts.append(f"{len(missing)} operators are missing: {', '.join(map(_count, missing))}")
        parts += [f"{_count(use)}: {use.reason}" for use in self.uses if not (use.missing or self._is_first(use))]
        if missing:
            parts.append("docs/onnx.md lists the operators that exist, and so does poolrt check --operators")
        return one_line("; ".join(parts))

    def _is_first(self, use: UnsupportedUse) -> bool:
        return (use.node, use.operator, use.reason) == (self.node, self.operator, self.reason)


def _count(use: UnsupportedUse) -> str:
    return f"{use.operator} ({use.count} node{'s' * (use.count > 1)})"


def one_line(text: str) -> str:
    """Return text without control characters, and without its middle if it is long."""
    return _shorten("".join(each if each.isprintable() else ascii(each)[1:-1] for each in _shorten(text)))


def _shorten(text: str) -> str:
    half = _MOST_CHARACTERS // 2
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: half - 5]} ... {text[-half:]}"
