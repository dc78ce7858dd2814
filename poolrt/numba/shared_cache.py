"""The cache objects that Numba's dispatchers ask: overloads from the store, each compiled once, by one process.

Numba asks its cache for an overload, compiles, and gives the result to the cache, all under its compiler lock. Here the
compilation runs within the question, as the `create` of the store: leases, heartbeats, takeovers and errors are the
store's. Numba's own next step, to compile, gets the result or the error that is there already, so that its events,
counts and errors are as ever.

No process waits for one that waits for it. A process creates with the compiler lock held, so its waits are one stack, and
a callee never needs the key of its caller; a callee that can reach a function under creation is compiled without the
store. Every wait is bounded by the store's `timeout_s`; after it, plain Numba compiles.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet, ref

from poolrt.cachestore.errors import CreationFailed, CreationTimeout, StoreError
from poolrt.cachestore.garbage import collection_paused

from .counters import counters
from .fingerprint import NotShareable
from .internals import Internals
from .key import overload_key
from .later import LaterAnnotation, LaterMetadata, Recompilation
from .payload import Header, Payload, PayloadKind, pack_payload, unpack_payload

if TYPE_CHECKING:
    from poolrt.cachestore import CacheStore, Key

#: What `stats.cache_path` of a dispatcher says.
CACHE_PATH: Final = "poolrt"


class Process:
    """What all caches of a process have in common."""

    def __init__(
        self, numba: Internals, store: Callable[[], CacheStore], find_on_node: Callable[[Key, str], bytes | None]
    ) -> None:
        self.numba = numba
        #: Return the store, connected on first use.
        self.store = store
        #: Return what the files of this node have, without a store if none is open.
        self.find_on_node = find_on_node
        #: Code libraries that are in the store, too.
        self.libraries: WeakSet[Any] = WeakSet()
        #: Functions of ufuncs that share the store.
        self.functions: WeakSet[FunctionType] = WeakSet()
        self._creating = threading.local()

    def under_way(self) -> list[FunctionType]:
        """Return the functions whose overloads this thread is creating, outermost first."""
        found: list[FunctionType] = self._creating.__dict__.setdefault("functions", [])
        return found


class SharedCache:
    """Numba's cache interface for one function, in front of a store."""

    cache_path: Final = CACHE_PATH

    def __init__(
        self,
        process: Process,
        subject: Any,
        function: FunctionType,
        compile_overload: Callable[[Any, Any], Any],
    ) -> None:
        """Cache overloads of ``subject``. ``compile_overload(args, return_type)`` compiles one and returns Numba's result."""
        # Children of multiprocessing have two names for the main module, of which other processes know one.
        if getattr(function, "__module__", None) == "__mp_main__":
            function.__module__ = "__main__"
        self._process = process
        self._numba = process.numba
        self._store = process.store
        #: Not held: a function of Numba's ends with its last reference, without the garbage collector.
        self._subject = ref(subject)
        self._function = function
        self._compile = compile_overload
        self._enabled = True
        #: Results and errors of compilations within `load_overload`, which Numba asks for next, by arguments and result.
        self._compiled: dict[Any, Any] = {}
        self._keys: set[Key] = set()

    def enable(self) -> None:
        """Ask the store again."""
        self._enabled = True

    def disable(self) -> None:
        """Ask the store no longer."""
        self._enabled = False

    def flush(self) -> None:
        """Remove from the store what this object has found or created."""
        keys, self._keys = self._keys, set()
        for key in keys:
            try:
                self._store().remove(key)
            except (StoreError, OSError) as error:
                counters().fall_back(str(error))

    def save_overload(self, sig: Any, data: Any) -> None:
        """Do nothing: `load_overload` has stored what it compiled."""

    def compile(self, args: Any, return_type: Any) -> Any:
        """Return, or raise, what `load_overload` has compiled; compile if it has not."""
        done = self._compiled.pop((tuple(args), return_type), None)
        if done is None:
            # Numba calls functions that call this one back by names that only this process knows.
            under_way = self._process.under_way()
            under_way.append(self._function)
            try:
                return self._compile(args, return_type)
            finally:
                under_way.pop()
        if isinstance(done, BaseException):
            raise done
        return done

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the overload if another process has compiled it, else compile it and return None.

        Raises nothing of the store: plain Numba compiles what the store cannot give.
        """
        if not self._enabled:
            return None
        args, return_type = self._numba.sigutils.normalize_signature(sig)
        code = self._function.__code__
        place = f"{code.co_filename}:{code.co_firstlineno}"
        with collection_paused(made_to_stay=True):  # what Numba loads for its first function is many modules
            target_context.refresh()
            described = self._described(sig, target_context)
            if described is None:
                return None
            key, references = described
            value = self._process.find_on_node(key, place)
            if value is not None:
                self._keys.add(key)
                return self._found("hits", key, value, target_context, (args, return_type), references)
        done = _Creation(self, args, return_type, references)
        try:
            outcome = self._store().fetch_or_create(key, done.create, keep_in_memory=False)
        except CreationFailed as failure:
            counters().add("failed")
            self._compiled[tuple(args), return_type] = done.error or self._error(failure)
            return None
        except (StoreError, OSError) as error:
            name = self._function.__qualname__
            late = isinstance(error, CreationTimeout)
            counters().fall_back(f"{name}: {'another creator takes too long' if late else error}")
            if done.result is not None:
                self._compiled[tuple(args), return_type] = done.result
            return None
        self._keys.add(key)
        self._store().note_asked(place, [key])
        if done.result is not None or done.error is not None:
            counters().add("created")
            if done.refusal:
                self._warn(done.refusal)
            elif done.result is not None:
                self._process.libraries.add(done.result.library)
            self._compiled[tuple(args), return_type] = done.result if done.error is None else done.error
            return None
        source = "waited" if outcome.source == "waited" else "hits"
        return self._found(source, key, outcome.value, target_context, (args, return_type), references)

    def _described(self, sig: Any, target_context: Any) -> tuple[Key, list[Any]] | None:
        """Return an overload's key, and what each process has itself; None if it is not to be shared."""
        try:
            key, reached, references = overload_key(
                self._numba, self._subject(), self._function, sig, self._flags(), target_context
            )
        except NotShareable as error:
            self._warn(f"as {error}")
            return None
        except Exception as error:  # noqa: BLE001 - Numba's internals are not as expected, in whatever way
            counters().fall_back(f"no key for {self._function.__qualname__}: {type(error).__name__}: {error}")
            return None
        return (key, references) if reached.isdisjoint(self._process.under_way()) else None

    def pack(self, result: Any, references: Sequence[Any]) -> tuple[PayloadKind, bytes]:
        """Return the kind and the payload of a compiled overload."""
        refusal, body = self._numba.refusal(result), b""
        if not refusal:
            try:
                body = self._numba.dump_result(result, references)
            except Exception as error:  # noqa: BLE001 - a constant of any type may refuse: the result is good all the same
                refusal = f"as it cannot be serialized ({type(error).__name__})"
        kind = PayloadKind.LOCAL if refusal else PayloadKind.RESULT
        return kind, pack_payload(Payload(kind, self._header(), body or refusal.encode()))

    def pack_literals(self, requested: frozenset[int]) -> bytes:
        """Return the payload of an overload that needs some arguments as literals."""
        return pack_payload(Payload(PayloadKind.LITERALS, self._header(), bytes(sorted(requested))))

    def creating(self) -> list[FunctionType]:
        """Return the functions under creation in this thread."""
        return self._process.under_way()

    def python_function(self) -> FunctionType:
        """Return the Python function."""
        return self._function

    def compile_now(self, args: Any, return_type: Any) -> Any:
        """Compile without the store."""
        return self._compile(args, return_type)

    @property
    def numba(self) -> Internals:
        """Numba's internals."""
        return self._numba

    def _flags(self) -> Any:
        """Return the flags that Numba's compiler would have for an overload now."""
        subject: Any = self._subject()
        compiler = subject._compiler
        flags = self._numba.compiler.Flags()
        compiler.targetdescr.options.parse_as_flags(flags, compiler.targetoptions)
        return compiler._customize_flags(flags)

    def _found(
        self,
        source: str,
        key: Key,
        value: bytes,
        target_context: Any,
        asked: tuple[Any, Any],
        references: Sequence[Any],
    ) -> Any:
        """Return the overload in an entry, counted by its source; None if Numba is to compile it."""
        with collection_paused(made_to_stay=True):
            found = self._load(key, value, target_context, *asked, references)
        if found is not None:
            self._process.libraries.add(found.library)
            counters().add(source)
            found = self._with_details(found, *asked)
        return found

    def _with_details(self, found: Any, args: Any, return_type: Any) -> Any:
        """Return an overload from the store whose diagnostics and annotation can be asked for."""
        again = Recompilation(lambda: self.compile(args, return_type))
        return found._replace(
            metadata=LaterMetadata(again), type_annotation=LaterAnnotation(found.type_annotation, again)
        )

    def _load(
        self, key: Key, value: bytes, target_context: Any, args: Any, return_type: Any, references: Sequence[Any]
    ) -> Any:
        try:
            payload = unpack_payload(value)
            if payload.kind is PayloadKind.LOCAL:
                self._warn(payload.body.decode())
                return None
            if payload.kind is PayloadKind.LITERALS:
                self._compiled[tuple(args), return_type] = self._numba.errors.ForceLiteralArg(payload.body)
                return None
            return self._numba.load_result(target_context, payload.body, references)
        except Exception as error:  # noqa: BLE001 - of whatever type: the function is compiled again
            counters().fall_back(f"{self._function.__qualname__} cannot be loaded: {type(error).__name__}: {error}")
            try:
                self._store().remove(key)
            except (StoreError, OSError):
                counters().fall_back(f"{self._function.__qualname__} cannot be removed")
            return None

    def _error(self, failure: CreationFailed) -> Exception:
        """Return the creator's error as the exception that Numba would have raised here."""
        errors = self._numba.errors
        kind = getattr(errors, failure.type, None)
        if isinstance(kind, type) and issubclass(kind, errors.NumbaError):
            try:
                raised: Exception = kind(failure.message)
            except TypeError:
                raised = errors.NumbaError(failure.message)
            return raised
        if failure.type in ("TypeError", "ValueError", "NotImplementedError", "AssertionError", "KeyError"):
            return {
                "TypeError": TypeError, "ValueError": ValueError, "NotImplementedError": NotImplementedError,
                "AssertionError": AssertionError, "KeyError": KeyError,
            }[failure.type](failure.message)  # fmt: skip
        return failure

    def _warn(self, reason: str) -> None:
        """Count a function that is not shared, with Numba's own warning of it."""
        name = self._function.__qualname__
        counters().explain(name, reason)
        code, category = self._function.__code__, self._numba.errors.NumbaWarning
        text = f'Cannot cache compiled function "{self._function.__name__}" {reason}'
        warnings.warn_explicit(text, category, code.co_filename, code.co_firstlineno)

    def _header(self) -> Header:
        code = self._function.__code__
        return Header(code.co_filename, code.co_firstlineno)


class UfuncCache(SharedCache):
    """The cache of a ufunc's element-wise functions: Numba enters their flags before it asks."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the overload, compiled here or elsewhere; None if plain Numba is to compile it."""
        found = super().load_overload(sig, target_context)
        if found is not None:
            return found
        args, return_type = self._numba.sigutils.normalize_signature(sig)
        done = self._compiled.pop((tuple(args), return_type), None)
        if isinstance(done, BaseException):
            raise done
        return done

    def _with_details(self, found: Any, args: Any, return_type: Any) -> Any:
        """Return the overload as it is: nothing shows more of a ufunc's loops, and their flags are gone."""
        return found

    def _flags(self) -> Any:
        return self._numba.targetconfig.ConfigStack.top_or_none()


class _Creation:
    """One compilation as the `create` of a store, with its result for Numba."""

    def __init__(self, cache: SharedCache, args: Any, return_type: Any, references: Sequence[Any]) -> None:
        self._cache = cache
        self._args = args
        self._return_type = return_type
        self._references = references
        self.result: Any = None
        self.error: Exception | None = None
        #: Why the result is this process's alone; empty if it is not.
        self.refusal = ""

    def create(self) -> bytes:
        """Compile, and return the payload. Raises the compiler's error."""
        cache = self._cache
        under_way = cache.creating()
        under_way.append(cache.python_function())
        try:
            self.result = cache.compile_now(self._args, self._return_type)
        except cache.numba.errors.ForceLiteralArg as error:
            self.error = error
            return cache.pack_literals(error.requested_args)
        except Exception as error:
            self.error = error
            raise
        finally:
            under_way.pop()
        kind, payload = cache.pack(self.result, self._references)
        if kind is PayloadKind.LOCAL:
            self.refusal = unpack_payload(payload).body.decode()
        return payload
