"""Errors whose fields are plain data: pickling, and the way to another process, leave them what they are.

`to_wire` returns a dictionary of strings, numbers and None (safe for msgpack and JSON); `from_wire` returns the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Self

#: Longest text, in characters, that a wire form carries in one field.
MAX_WIRE_TEXT: Final = 64 * 1024
#: Longest log, in characters, that describes an exception: its end says what went wrong.
_LOG_TAIL: Final = 16 * 1024
#: Name of a field's type -> what a wire form may hold for it.
_TYPES: Final[dict[str, type | tuple[type, ...]]] = {"str": str, "int": int, "float": (int, float)}


class PortableError(Exception):
    """Root of all errors that cross processes. Each argument of a constructor is an attribute of the same name too."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, name) for name in self.fields())

    @classmethod
    def fields(cls) -> dict[str, str]:
        """Return the constructor's arguments in order, with the names of their types."""
        return {name: kind for name, kind in cls.__init__.__annotations__.items() if name != "return"}

    def copy(self) -> Self:
        """Return an equal error with its own traceback, so that several threads can raise it at once."""
        rebuild, arguments = self.__reduce__()
        twin = rebuild(*arguments)
        twin.__cause__ = self.__cause__
        return twin

    def to_wire(self) -> dict[str, Any]:
        """Return the error as plain data."""
        values = {name: getattr(self, name) for name in self.fields()}
        cut = {name: value[:MAX_WIRE_TEXT] if isinstance(value, str) else value for name, value in values.items()}
        return {"error": type(self).__name__, **cut}

    @classmethod
    def from_wire(cls, wire: object) -> PortableError:
        """Return the error that `to_wire` described; one of an unknown class, from a newer peer, becomes a plain ``cls``.

        Raises ValueError when the data is not such a description.
        """
        if not isinstance(wire, dict) or not isinstance(name := wire.get("error"), str):
            raise ValueError("not the wire form of an error")
        kind = next((kind for kind in _classes(PortableError) if kind.__name__ == name), None)
        if kind is None:
            return cls(f"{name}: {wire.get('message', '')}")
        for field, expected in kind.fields().items():
            if not isinstance(wire.get(field), _TYPES[expected]):
                raise ValueError(f"the wire form of {name} has no usable field {field!r}")
        return kind(*(wire[field] for field in kind.fields()))


def _classes(root: type[PortableError]) -> Iterator[type[PortableError]]:
    yield root
    for kind in root.__subclasses__():
        yield from _classes(kind)


def describe_exception(error: BaseException) -> tuple[str, str, str]:
    """Return an exception's type, message and log; a `log` attribute of text stands for the traceback."""
    log = getattr(error, "log", None)
    if not isinstance(log, str) or not log:
        from traceback import format_exception

        log = "".join(format_exception(error))
    return type(error).__qualname__, sendable(str(error)), sendable(log[-_LOG_TAIL:])


def sendable(text: str) -> str:
    """Return a text that UTF-8 can encode: paths that are not UTF-8 have surrogates, which become their escapes."""
    return text.encode("utf-8", "backslashreplace").decode()
