"""The function of a call in a worker: what it may be, and its name in errors."""

from __future__ import annotations

from functools import partial

from poolrt.spelling import describe_type


def require_function(name: str, fn: object) -> None:
    """Raise TypeError unless ``fn`` can be called; ``name`` is the method that takes it, such as ``submit``."""
    if not callable(fn):
        raise TypeError(
            f"{name}: expect a function, got {describe_type(fn)}; give the function and its arguments apart: "
            f"pool.{name}(f, x), not pool.{name}(f(x))"
        )


def name_of(fn: object) -> str:
    """Return module and name of what a worker calls, for errors."""
    while isinstance(fn, partial):
        fn = fn.func
    named = fn if hasattr(fn, "__qualname__") else type(fn)
    module = getattr(named, "__module__", None)
    name = str(getattr(named, "__qualname__", named))
    return f"{module}.{name}" if isinstance(module, str) else name
