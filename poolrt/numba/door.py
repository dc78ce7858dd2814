"""Functions that share the store: `njit`, `vectorize` and `guvectorize` as Numba's, `share`, and `install`.

Numba's decorators ask for a cache if ``cache=True``, and make it by `enable_caching`. That is the door: within the
decorators of this module, and after `install` everywhere, the cache is one of `shared_cache`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from types import FunctionType
from typing import Any, Final

from poolrt.cachestore.forked_locks import freed_in_children

from .counters import counters
from .internals import Internals, Unsupported, internals
from .process_store import find_on_node, process_store
from .shared_cache import Process, SharedCache, UfuncCache
from .ufunc_loops import noting_inferred

#: Whether the calling code is within a decorator of this module.
_within: Final[ContextVar[bool]] = ContextVar("poolrt.numba.within", default=False)


class Door:
    """The one place where Numba's caches are replaced."""

    def __init__(self, numba: Internals) -> None:
        self._numba = numba
        self._installed = False
        self._process = process = Process(numba, process_store, find_on_node)
        for kind, share in (
            (numba.dispatcher.Dispatcher, self.share_dispatcher),
            (numba.ufuncbuilder.UFuncDispatcher, self.share_ufunc),
            (numba.ccallback.CFunc, self._share_cfunc),
        ):
            kind.enable_caching = _replaced(kind.enable_caching, share, self.is_open)
        wrapper, plain_cache = numba.wrappers._GufuncWrapper, numba.wrappers.GufWrapperCache

        def wrapper_cache(py_func: FunctionType) -> Any:
            """Return Numba's cache of files for a function that does not share the store."""
            return numba.caching.NullCache() if py_func in process.functions else plain_cache(py_func=py_func)

        for kind, stand_in, is_shared in (
            (numba.registry.CPUDispatcher, SharedFunction, _is_shared_function),
            (numba.ufuncbuilder.UFuncDispatcher, SharedUfunc, _is_shared_ufunc),
            (numba.gufunc.GUFunc, SharedGufunc, _is_shared_gufunc),
        ):
            kind._reduce_class = _reducing(kind._reduce_class, stand_in, is_shared)
        numba.wrappers.GufWrapperCache = wrapper_cache
        wrapper._compile_wrapper = _wrapping(wrapper._compile_wrapper, process)
        loops = numba.ufuncbuilder.UFuncDispatcher
        loops._compile_core = noting_inferred(loops._compile_core, numba)
        numba.make_names_unique()
        os.register_at_fork(after_in_child=numba.make_names_unique)

    def is_open(self) -> bool:
        """Return whether a function that asks for a cache gets a shared one."""
        return self._installed or _within.get()

    def install(self) -> None:
        """Keep the door open for all."""
        self._installed = True

    def uninstall(self) -> None:
        """Keep the door open for the decorators of this module only."""
        self._installed = False

    def share_dispatcher(self, dispatcher: Any) -> None:
        """Give a dispatcher of Numba's for the processor a shared cache."""
        if not isinstance(dispatcher, self._numba.registry.CPUDispatcher):
            raise TypeError(f"expect a function of numba.njit for the CPU, got {dispatcher!r}")
        if isinstance(dispatcher._cache, SharedCache):
            return
        compiler = dispatcher._compiler
        cache = SharedCache(self._process, dispatcher, dispatcher.py_func, compiler.compile)
        compiler.compile = cache.compile
        dispatcher._cache = cache

    def share_ufunc(self, ufunc: Any) -> None:
        """Give the element-wise functions of a ufunc a shared cache."""
        numba = self._numba

        def compile_overload(args: Any, return_type: Any) -> Any:
            descriptor, flags = ufunc.targetdescr, numba.targetconfig.ConfigStack.top_or_none()
            return numba.compiler.compile_extra(
                descriptor.typing_context, descriptor.target_context, ufunc.py_func,
                args=args, return_type=return_type, flags=flags, locals={},
            )  # fmt: skip

        self._process.functions.add(ufunc.py_func)
        ufunc.cache = UfuncCache(self._process, ufunc, ufunc.py_func, compile_overload)

    def _share_cfunc(self, cfunc: Any) -> None:
        compiler = cfunc._compiler
        cache = SharedCache(self._process, cfunc, cfunc._pyfunc, compiler.compile)
        compiler.compile = cache.compile
        cfunc._cache = cache


def _replaced(plain: Any, share: Callable[[Any], None], is_open: Callable[[], bool]) -> Any:
    def enable_caching(self: Any) -> None:
        """Give a function a cache: poolrt's within poolrt's decorators and after `poolrt.numba.install`, else Numba's."""
        if is_open():
            try:
                share(self)
            except TypeError:
                plain(self)  # another target
        else:
            plain(self)

    return enable_caching


def _wrapping(plain: Any, process: Process) -> Any:
    def compile_wrapper(self: Any, wrapper_name: str) -> Any:
        """Return a wrapper's library: from the store, or put there, if its function is there."""
        if self.is_parfors or self.cres.library not in process.libraries:
            return plain(self, wrapper_name)
        from .gufunc_wrapper import wrapper_library

        return wrapper_library(process, self, wrapper_name)

    return compile_wrapper


class SharedFunction:
    """Stands for the class of a shared function in pickles: in the process that reads one, it is shared again.

    Numba's own pickles have no cache, so that each process would compile.
    """

    @classmethod
    def _rebuild(cls, **states: Any) -> Any:
        """Return the function of Numba's states, its signatures found or compiled for all."""
        from numba.core import registry

        dispatchers: Any = registry.CPUDispatcher
        door = _open_door()
        if door is None:
            return dispatchers._rebuild(**states)
        found = dispatchers._rebuild(**{**states, "sigs": [], "can_compile": True})
        if not isinstance(found._cache, SharedCache):  # else it is one of this process
            door.share_dispatcher(found)
            for signature in states["sigs"]:
                found.compile(signature)
            found._can_compile = states["can_compile"]
        return found


class SharedUfunc:
    """Stands for the class of a shared ufunc's element-wise functions in pickles."""

    @classmethod
    def _rebuild(cls, **states: Any) -> Any:
        """Return the element-wise functions of Numba's states, shared."""
        from numba.np.ufunc.ufuncbuilder import UFuncDispatcher

        door, found = _open_door(), UFuncDispatcher._rebuild(**states)
        if door is not None:
            door.share_ufunc(found)
        return found


class SharedGufunc:
    """Stands for the class of a shared generalized ufunc in pickles."""

    @classmethod
    def _rebuild(cls, **states: Any) -> Any:
        """Return the ufunc of Numba's states, its loops found or compiled for all."""
        from numba.np.ufunc.gufunc import GUFunc

        if _open_door() is None:
            return GUFunc._rebuild(**{**states, "cache": False})
        with _opened():
            return GUFunc._rebuild(**{**states, "cache": True})


def _is_shared_function(dispatcher: Any) -> bool:
    return isinstance(dispatcher._cache, SharedCache)


def _is_shared_ufunc(ufunc: Any) -> bool:
    return isinstance(ufunc.cache, SharedCache)


def _is_shared_gufunc(gufunc: Any) -> bool:
    return _is_shared_ufunc(gufunc.gufunc_builder.nb_func)


def _reducing(plain: Any, stand_in: type, is_shared: Callable[[Any], bool]) -> Any:
    def reduce_class(self: Any) -> Any:
        """Return the class that rebuilds a pickled object: one that shares it again if it is shared."""
        return stand_in if is_shared(self) else plain(self)

    return reduce_class


@lru_cache(maxsize=1)
def _door() -> Door | Unsupported:
    try:
        return Door(internals())
    except Unsupported as error:
        return error


@lru_cache(maxsize=1)
def _making() -> threading.Lock:
    return freed_in_children(threading.Lock())


def _open_door() -> Door | None:
    """Return the door; None, counted and with one warning, if this Numba is not supported."""
    with _making():
        door = _door()
    if isinstance(door, Door):
        return door
    counters().fall_back(str(door))
    return None


@contextmanager
def _opened() -> Iterator[None]:
    token = _within.set(True)
    try:
        yield
    finally:
        _within.reset(token)


def _decorate(plain: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Call a decorator of Numba's, and the decorator that this may return, with the door open."""
    if _open_door() is None:
        options.pop("cache", None)
        return plain(*args, **options)
    options["cache"] = True
    with _opened():
        made = plain(*args, **options)
    if not isinstance(made, FunctionType) or any(made is given for given in (*args, *options.values())):
        return made  # with NUMBA_DISABLE_JIT, the function itself

    def decorator(function: Any) -> Any:
        with _opened():
            return made(function)

    return decorator


def njit(*args: Any, **options: Any) -> Any:
    """Compile a function with Numba, each overload once for all processes and hosts that share the store.

    Takes what `numba.njit` takes and returns what it returns; ``cache`` has no meaning. Raises what Numba raises: a process
    that waited for another one's compilation gets an equal error.
    """
    import numba

    return _decorate(numba.njit, args, options)


def vectorize(*args: Any, **options: Any) -> Any:
    """Make a NumPy ufunc with Numba, each loop compiled once for all. Takes and returns what `numba.vectorize` does."""
    import numba

    return _decorate(numba.vectorize, args, options)


def guvectorize(*args: Any, **options: Any) -> Any:
    """Make a generalized ufunc with Numba, each loop compiled once for all. Takes and returns what `numba.guvectorize` does."""
    import numba

    return _decorate(numba.guvectorize, args, options)


def share(dispatcher: Any) -> Any:
    """Let a function that `numba.njit` has made share the store from now on, and return it.

    Overloads that are compiled already stay as they are. Raises TypeError for what is no such function.
    """
    door = _open_door()
    if door is not None:
        door.share_dispatcher(dispatcher)
    return dispatcher


def install() -> None:
    """Let every function of this process that asks for ``cache=True`` from now on share the store, those of libraries too."""
    door = _open_door()
    if door is not None:
        door.install()


def uninstall() -> None:
    """Undo `install` for functions that are made from now on."""
    door = _open_door()
    if door is not None:
        door.uninstall()


def stats() -> dict[str, int]:
    """Return how many overloads of this process were hits, created, waited for, failed, unshared, and fell back to Numba."""
    return counters().counts()


def not_shared() -> dict[str, str]:
    """Return the functions that this process did not share, each with the reason."""
    return counters().reasons()
