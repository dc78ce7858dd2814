"""What only Numba's compiler knows of an overload: of one from the store, it is compiled once more if it is asked for.

Entries hold code and a text of the annotated types. Diagnostics of parallel loops and objects of the annotation are large,
and no call needs them, so that Numba's own cache does not keep them either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any


class Recompilation:
    """One more compilation of an overload, without the store, when a part of its result is needed."""

    def __init__(self, compile_again: Callable[[], Any]) -> None:
        """Take ``compile_again``, which returns Numba's result."""
        self._compile_again = compile_again
        self._result: Any = None

    def result(self) -> Any:
        """Return Numba's result, compiled on first use. Raises the compiler's errors."""
        if self._result is None:
            self._result = self._compile_again()
        return self._result


class LaterMetadata(MutableMapping[str, Any]):
    """The metadata of an overload: what is set here, and what the compiler noted."""

    def __init__(self, again: Recompilation) -> None:
        self._again = again
        self._own: dict[str, Any] = {}

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Return what is set here, after setting it: Numba adds times of locks, which must not compile."""
        return self._own.setdefault(name, default)

    def __getitem__(self, name: str) -> Any:
        return self._own[name] if name in self._own else self._again.result().metadata[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._own[name] = value

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._again.result().metadata | self._own)

    def __len__(self) -> int:
        return len(self._again.result().metadata | self._own)


class LaterAnnotation:
    """The annotated types of an overload: as text what the entry holds, else what the compiler makes."""

    def __init__(self, text: str, again: Recompilation) -> None:
        self._text = text
        self._again = again

    def __str__(self) -> str:
        return self._text

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._again.result().type_annotation, name)
