"""The base of objects that threads share: once made, they refuse assignment."""

from __future__ import annotations

from typing import NoReturn


class Immutable:
    """Refuse to assign and to delete attributes, known ones and new ones.

    A constructor sets them with ``object.__setattr__`` or ``vars(self).update``; so does a method that keeps what it has
    computed, of which any number of threads may compute the same.
    """

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Raise AttributeError."""
        raise AttributeError(f"{name}: cannot be assigned, since threads share a {type(self).__name__}")

    def __delattr__(self, name: str) -> NoReturn:
        """Raise AttributeError."""
        raise AttributeError(f"{name}: cannot be deleted, since threads share a {type(self).__name__}")
