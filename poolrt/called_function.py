"""The function of a call in a worker, which is given apart from its arguments."""

from __future__ import annotations

from .spelling import describe_type


def require_function(name: str, fn: object) -> None:
    """Raise TypeError unless ``fn`` can be called; ``name`` is the method that takes it, such as ``submit``."""
    if not callable(fn):
        raise TypeError(
            f"{name}: expect a function, got {describe_type(fn)}; give the function and its arguments apart: "
            f"pool.{name}(f, x), not pool.{name}(f(x))"
        )
