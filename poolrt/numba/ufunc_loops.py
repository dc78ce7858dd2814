"""The loops of a ufunc that no call would compile as they are, which callers of the ufunc depend on.

A ufunc without signatures compiles a loop for each call with new types, so its present loops are a process's history, and
not part of what callers depend on. Loops that its method ``add`` made are: with a result that differs from the inferred
one, or a generalized ufunc's with arrays of one layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

#: The attribute of a ufunc's dispatcher with the loops whose results Numba inferred.
_INFERRED: Final = "_poolrt_inferred"


def noting_inferred(plain: Callable[..., Any], numba: Any) -> Callable[..., Any]:
    """Return Numba's method that compiles a loop of a ufunc; it notes the loops whose results are inferred."""

    def compile_core(self: Any, sig: Any, flags: Any, locals: Any) -> Any:
        """Compile a loop, or take it from the cache."""
        compiled = plain(self, sig, flags, locals)
        if numba.sigutils.normalize_signature(sig)[1] is None:
            vars(self).setdefault(_INFERRED, set()).add(compiled.signature)
        return compiled

    return compile_core


def declared_loops(ufunc: Any, dispatcher: Any) -> list[Any]:
    """Return the signatures of the loops that calls find and would not compile so.

    ``ufunc`` compiles at calls, by ``dispatcher``. A loop that was compiled before poolrt was imported may be one, so it counts
    as one.
    """
    if getattr(ufunc, "gufunc_builder", None) is None:
        inferred = vars(dispatcher).get(_INFERRED, ())
        return [loop for loop in dispatcher.overloads if loop not in inferred]
    first: dict[tuple[Any, ...], Any] = {}
    for loop in dispatcher.overloads:
        first.setdefault(tuple(ufunc._get_ewise_dtypes(loop.args)), loop)
    return [loop for types, loop in first.items() if ufunc._get_function_type(*types).args != loop.args]
