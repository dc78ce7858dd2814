"""What a kernel raises: class and arguments of an exception as a text in its native object, and the exception again.

A kernel that raises writes the address of such a text, as C does with strings. Nothing is pickled: arguments are plain
values, and the class is found by name among the modules that the process has.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Final

from poolrt.cachestore.deferred_namedtuple import NamedTuple

#: Begins each text, so that anything else is noticed.
_MARK: Final = "poolrt raised "
#: Arguments of an exception that are kept, and characters of each.
_MOST: Final = 8
_LONGEST: Final = 1000


class Raised(NamedTuple):
    """The class of an exception, by module and qualified name, and its arguments."""

    module: str
    name: str
    arguments: tuple[str | int | float | None, ...]

    def __str__(self) -> str:
        if len(self.arguments) == 1:
            return f"{self.name}: {self.arguments[0]}"
        return f"{self.name}: {self.arguments}" if self.arguments else self.name

    def text(self) -> str:
        """Return the form that `parse_raised` parses; it has no character 0."""
        import json

        return _MARK + json.dumps([self.module, self.name, list(self.arguments)])

    def exception(self) -> Exception:
        """Return the exception. One whose class this process does not have, or cannot make, is a RuntimeError that names it."""
        found: Any = sys.modules.get(self.module)
        for part in self.name.split("."):
            found = getattr(found, part, None)
        if isinstance(found, type) and issubclass(found, Exception):
            try:
                made: object = found(*self.arguments)
            except Exception:  # noqa: BLE001 - a user's constructor
                made = None
            if isinstance(made, Exception):
                return made
        return RuntimeError(str(self))


def describe_raised(kind: type[BaseException], arguments: tuple[object, ...]) -> Raised:
    """Return the description of an exception that a kernel may raise."""
    return Raised(kind.__module__, kind.__qualname__, tuple(map(_plain, arguments[:_MOST])))


def parse_raised(text: str) -> Raised | None:
    """Return what `Raised.text` described, None for any other text."""
    if not text.startswith(_MARK):
        return None
    import json

    try:
        module, name, arguments = json.loads(text.removeprefix(_MARK))
    except (ValueError, TypeError, RecursionError):
        return None
    if not (isinstance(module, str) and isinstance(name, str) and isinstance(arguments, list)):
        return None
    if not all(isinstance(each, (str, int, float, type(None))) for each in arguments):
        return None
    return Raised(module, name, tuple(arguments))


def raised_at(address: int | None) -> Raised | None:
    """Return what the text at an address describes, None for no address and any other text.

    The address must be one that a native kernel of this process has written.
    """
    return parse_raised(ctypes.string_at(address).decode(errors="replace")) if address else None


def _plain(argument: object) -> str | int | float | None:
    if argument is None or type(argument) in (bool, int, float):
        plain: Any = argument
        return plain if not isinstance(plain, int) or abs(plain) < 1 << 63 else repr(plain)
    return (argument if type(argument) is str else repr(argument))[:_LONGEST]
