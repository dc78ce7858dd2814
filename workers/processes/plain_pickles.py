"""Pickles of plain values: numbers, texts, bytes and containers of them, in one call of C code.

Every other object is left to cloudpickle, which looks at each class and function in Python.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Final

#: Bytes of a buffer that is kept.
_KEPT: Final = 64 * 1024


class _NotPlain(Exception):
    """A value has an object that is not plain."""


class _PlainPickler(pickle.Pickler):
    """Refuses all objects that are not of a built-in type: these never come here."""

    def reducer_override(self, obj: Any) -> Any:
        raise _NotPlain


class PlainPickles:
    """Pickles plain values, one thread at a time. Making a pickler takes longer than a small value, so it is kept."""

    __slots__ = ("_file", "_pickler")

    def __init__(self) -> None:
        self._renew()

    def dumps(self, value: object) -> bytes | None:
        """Return a pickle that `pickle.loads` and every other loader reads, None for a value that is not plain.

        Raises what pickling raises: RecursionError, and MemoryError.
        """
        file, pickler = self._file, self._pickler
        # An interrupt may have ended the call before anywhere, so each one begins by clearing.
        file.seek(0)
        file.truncate()
        pickler.clear_memo()
        try:
            pickler.dump(value)
        except _NotPlain:
            return None
        data = file.getvalue()
        if len(data) > _KEPT:
            self._renew()
        return data

    def _renew(self) -> None:
        self._file = io.BytesIO()
        self._pickler = _PlainPickler(self._file, pickle.HIGHEST_PROTOCOL)
