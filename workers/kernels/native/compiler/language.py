"""The language that kernels are written in: a part of Python, which `lowering` turns into LLVM's.

A kernel is a Python function of numbers and addresses, with ``if``, ``for`` over a range, ``while``, calls of other functions
and of *intrinsics*. Names that it takes from its module or from the function around it are constants. Its numbers are int64,
float64 and float32, and vectors; what is not among them, or has another type from one turn of a loop to the next, is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

#: Return a signature and the function (context, builder, signature, values) -> value that writes the code.
Typing = Callable[..., Any]
_F = TypeVar("_F", bound=Callable[..., Any])


class Intrinsic:
    """A function that kernels call, whose code is written with LLVM's builder; Python does not call it."""

    def __init__(self, typing: Typing) -> None:
        self.typing = typing
        self.__doc__ = typing.__doc__
        self.__name__ = typing.__name__

    def __call__(self, *arguments: Any) -> Any:
        """Refuse a call."""
        raise TypeError(f"{self.__name__} is called by kernels only")


def intrinsic(typing: Typing) -> Any:
    """Return an intrinsic. ``typing`` is called with None and the types of the arguments.

    Type checkers would take a typing function for the function that kernels call, hence the result without a type.
    """
    return Intrinsic(typing)


def not_inlined(function: _F) -> _F:
    """Mark a function that is part of no caller's code: LLVM may repeat a caller's loops for each case in it."""
    vars(function)["is_not_inlined"] = True
    return function


def inlined(function: _F) -> _F:
    """Mark a function that is part of the code of each caller, however large it is."""
    vars(function)["is_inlined"] = True
    return function
