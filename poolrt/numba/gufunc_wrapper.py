"""The wrappers that make a compiled function a loop of a generalized ufunc, from the store as their functions are.

A wrapper's name has the symbol of its function, which no other compilation has, so that the name is its content.
"""

from __future__ import annotations

from typing import Any

from poolrt.cachestore.errors import CreationFailed, StoreError
from poolrt.cachestore.key import Key

from .counters import counters
from .key import KIND, SCHEMA, toolchain
from .payload import Header, Payload, PayloadKind, pack_payload, unpack_payload
from .shared_cache import Process


def wrapper_library(process: Process, wrapper: Any, name: str) -> Any:
    """Return the code library of a wrapper of Numba's. Raises what building it raises."""
    built: list[Any] = []
    errors: list[Exception] = []
    code = wrapper.py_func.__code__
    header = Header(code.co_filename, code.co_firstlineno)

    def build() -> Any:
        library = wrapper.context.codegen().create_library(str(wrapper))
        library.enable_object_caching()
        wrapper._build_wrapper(library, name)
        return library

    def create() -> bytes:
        try:
            built.append(build())
        except Exception as error:
            errors.append(error)
            raise
        return pack_payload(Payload(PayloadKind.LIBRARY, header, process.numba.dump_library(built[0])))

    key = Key(
        {
            "schema": SCHEMA,
            "kind": KIND,
            "function": f"{wrapper.py_func.__module__}.{wrapper.py_func.__qualname__}",
            "signature": "generalized ufunc",
            "wrapper": name,
            "layout": [wrapper.sin, wrapper.sout],
            "target": list(wrapper.context.codegen().magic_tuple()),
            "toolchain": toolchain(),
        }
    )
    found = process.find_on_node(key, f"{header.file}:{header.line}")
    try:
        if found is not None:
            return process.numba.load_library(wrapper.context, unpack_payload(found).body)
        outcome = process.store().fetch_or_create(key, create, keep_in_memory=False)
        if not built:
            return process.numba.load_library(wrapper.context, unpack_payload(outcome.value).body)
    except CreationFailed as error:
        if errors:
            raise errors[0] from None
        counters().fall_back(f"the wrapper of {wrapper.py_func.__qualname__}: {error}")
    except (StoreError, OSError, ValueError, LookupError, EOFError) as error:
        counters().fall_back(f"the wrapper of {wrapper.py_func.__qualname__}: {error}")
    return built[0] if built else build()
