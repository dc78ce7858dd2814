"""Functions and values as pickles, by cloudpickle.

Functions and classes of a program's main module (a script, a notebook) and local ones travel by value, with the globals that
they use; those of other modules travel by name. Functions of a client's main module share one table of globals in a worker,
as they do in the client (`Namespace`). Classes of it come back as the client's own, not as copies.
"""

from __future__ import annotations

import builtins
import io
import pickle
import sys
import types
from collections import ChainMap
from collections.abc import Callable, Iterable
from itertools import starmap
from typing import Any, ClassVar, Final, TypeVar
from weakref import WeakSet

import cloudpickle
from cloudpickle import cloudpickle as _internals

from ..ipc.bounded_decoding import Payload
from .outlined_buffers import OutlinedBuffers, is_array
from .plain_pickles import PlainPickles

T = TypeVar("T")

_MAIN: Final = "__main__"
#: The place of the file's name among the arguments of a code object.
_FILENAME: Final = 10


class _MainGlobals:
    """Stands in a pickle for the globals of the client's main module; ``facts`` are its name, file and package."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts

    def __reduce__(self) -> tuple[Any, ...]:
        return main_globals, (self.facts,)


def main_globals(facts: dict[str, Any]) -> dict[str, Any]:
    """Return globals for functions that are loaded without a namespace; `Namespace.load` replaces this function."""
    return dict(facts)


def find_main_class(identity: str, name: str) -> Any:
    """Return a class of this program's main module that a worker has returned, by cloudpickle's identity or by its name."""
    found: Any = _internals._DYNAMIC_CLASS_TRACKER_BY_ID.get(identity)
    if found is None:
        found = sys.modules[_MAIN]
        for part in name.split("."):
            found = getattr(found, part)
    return found


def _reduce_code(code: types.CodeType) -> tuple[Any, ...]:
    """Reduce a code object with the name of its file, which cloudpickle replaces from 3.1.3 on: tracebacks quote its lines."""
    build, arguments, *rest = _internals._code_reduce(code)
    name = "".join(code.co_filename)  # a new object, as cloudpickle has it, so that equal functions have equal pickles
    return build, (*arguments[:_FILENAME], name, *arguments[_FILENAME + 1 :]), *rest


class _Pickler(cloudpickle.Pickler):
    """Pickles arrays so that long ones travel beside the pickle, as ``buffers``, if these are not None."""

    dispatch_table: ClassVar[Any] = ChainMap({types.CodeType: _reduce_code}, *cloudpickle.Pickler.dispatch_table.maps)

    def __init__(self, file: io.BytesIO, buffers: OutlinedBuffers | None) -> None:
        super().__init__(file, None, None if buffers is None else buffers.take)
        self._buffers = buffers

    def reducer_override(self, obj: Any) -> Any:
        if self._buffers is not None and is_array(obj):
            return self._buffers.reduce(obj, plain=False)
        return super().reducer_override(obj)


class _CallPickler(_Pickler):
    """Pickles for a worker. All functions of the main module refer to one table of globals."""

    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)
        if isinstance(obj, types.FunctionType) and isinstance(reduced, tuple):
            main = sys.modules.get(_MAIN)
            if main is not None and obj.__globals__ is main.__dict__:
                code, facts, *rest = reduced[1]
                return (reduced[0], (code, _MainGlobals(facts), *rest), *reduced[2:])
        return reduced


class _ResultPickler(_Pickler):
    """Pickles for the client. ``own`` are the classes that this process defined, as opposed to those that came from a client."""

    def __init__(self, file: io.BytesIO, buffers: OutlinedBuffers | None, own: WeakSet[type]) -> None:
        super().__init__(file, buffers)
        self._own = own

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and obj.__module__ == _MAIN and obj not in self._own:
            identity = _internals._DYNAMIC_CLASS_TRACKER_BY_CLASS.get(obj)
            if identity is None:
                self._own.add(obj)
            elif "<locals>" not in obj.__qualname__:
                return find_main_class, (identity, obj.__qualname__)
        return super().reducer_override(obj)


def pickle_for_worker(value: object, buffers: OutlinedBuffers | None = None) -> bytes:
    """Return a function or arguments as a pickle; ``buffers`` get what is long. Raises what the objects raise when pickled."""
    with io.BytesIO() as file:
        _CallPickler(file, buffers).dump(value)
        return file.getvalue()


def load_result(data: bytes | Payload) -> Any:
    """Return the value of a worker's pickle. Raises what the objects raise when they are loaded."""
    return pickle.loads(data if isinstance(data, bytes) else b"".join(data.pieces))


def call_each(fn: Callable[..., T], items: list[tuple[Any, ...]]) -> list[T]:
    """Return the results of a function for the arguments of several calls."""
    return [*starmap(fn, items)]


def call_all(fn: Callable[[Any], T], items: list[Any]) -> list[T]:
    """Return the results of a function of one argument for several items."""
    return [*map(fn, items)]


def call_range(fn: Callable[[int], T], start: int, stop: int, step: int) -> list[T]:
    """Return the results of a function of one argument for the integers of a range."""
    return [*map(fn, range(start, stop, step))]


class Namespace:
    """The globals of one client's main module in this process, and the pickles that refer to them.

    A value that code in this process has assigned to a global stays, as it does in a process of
    `concurrent.futures.ProcessPoolExecutor`: an initializer may set what functions use. Other globals have the values that
    they had in the client when the function was submitted.
    """

    def __init__(self) -> None:
        self.globals: dict[str, Any] = {}
        self._installed: dict[str, Any] = {}
        self._own: WeakSet[type] = WeakSet()
        self._plain = PlainPickles()

    def load(self, data: bytes | memoryview, start: int = 0, buffers: Iterable[Any] = ()) -> tuple[Any, dict[str, Any]]:
        """Return the value of a pickle, which begins at position ``start``, and the globals that its functions use.

        `install` makes these visible to them. ``buffers`` are those beside the pickle.
        """
        file = io.BytesIO(data)
        file.seek(start)
        loader = _Unpickler(file, self.globals, buffers)
        try:
            value = loader.load()
        finally:
            found = loader.leave()
        return value, found

    def install(self, found: dict[str, Any]) -> None:
        """Set globals, except those that code in this process has assigned."""
        current, installed = self.globals, self._installed
        for name, value in found.items():
            before = current.get(name, current)
            if before is value:
                continue
            if before is current or (name in installed and current[name] is installed[name]):
                current[name] = installed[name] = value

    def pickle_result(self, value: object, buffers: OutlinedBuffers | None = None) -> bytes:
        """Return a value as a pickle for the client; ``buffers`` get what is long. Raises what the objects raise when pickled."""
        plain = self._plain.dumps(value, buffers)
        if plain is not None:
            return plain
        with io.BytesIO() as file:
            _ResultPickler(file, buffers, self._own).dump(value)
            return file.getvalue()


class _Unpickler(pickle.Unpickler):
    """Loads a pickle whose functions use ``namespace``, which holds only their globals until `leave`."""

    def __init__(self, file: io.BytesIO, namespace: dict[str, Any], buffers: Iterable[Any] = ()) -> None:
        super().__init__(file, buffers=buffers)
        self._namespace = namespace
        self._before: dict[str, Any] | None = None
        self._facts: dict[str, Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        if name == "main_globals" and module == __name__:
            return self._enter
        return super().find_class(module, name)

    def _enter(self, facts: dict[str, Any]) -> dict[str, Any]:
        if self._before is None:
            self._before = dict(self._namespace)
            self._namespace.clear()
        self._facts = {**facts, "__builtins__": vars(builtins)}
        self._namespace.update(self._facts)
        return self._namespace

    def leave(self) -> dict[str, Any]:
        """Restore the namespace, with the main module's facts, and return the other globals that the pickle contains."""
        if self._before is None:
            return {}
        namespace, facts, before = self._namespace, self._facts, self._before
        found = {name: each for name, each in namespace.items() if name not in facts or facts[name] != each}
        self._before = None
        namespace.clear()
        namespace.update(facts)
        namespace.update(before)
        return found
