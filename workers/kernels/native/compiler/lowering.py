"""Lowering: LLVM's code for functions in the language of kernels, from their syntax trees.

Each function is a function of LLVM's for each list of types that it is called with, so that LLVM chooses what it inlines.
Texts, functions and tuples that are known are part of that list. Types follow from arguments and constants in one walk.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any, Final

import llvmlite.ir as ir

from . import types
from .language import Intrinsic
from .operands import Known, Operand, Refused, Typed, cast, is_number, typed
from .statements import Body, Lowered

#: LLVM's address of nothing, where an intrinsic without a result returns one.
_NOTHING: Final = ir.Constant(ir.IntType(8).as_pointer(), None)


class Context:
    """What intrinsics ask for beside the builder."""

    def get_dummy_value(self) -> ir.Value:
        """Return what an intrinsic without a result returns."""
        return _NOTHING


class Lowering:
    """Adds functions to a module of LLVM's. Raises Refused, with file and line, for what is not in the language."""

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self._context = Context()
        self._lowered: dict[Any, Lowered | None] = {}

    def call(self, b: ir.IRBuilder, callee: Any, given: list[Operand]) -> Operand:
        """Call a function or an intrinsic."""
        if isinstance(callee, Intrinsic):
            return self._call_intrinsic(b, callee, given)
        if any(isinstance(one, tuple) for one in given):
            raise Refused("a tuple of values is no argument")
        given = [*given, *_defaults(callee, len(given))]
        operands = [typed(one) if is_number(one) else one for one in given]
        lowered = self.function(callee, tuple(one.kind if isinstance(one, Typed) else one for one in operands))
        found = b.call(lowered.function, [one.value for one in operands if isinstance(one, Typed)])
        if lowered.is_tuple:
            return tuple(Typed(kind, b.extract_value(found, i)) for i, kind in enumerate(lowered.results))
        return Typed(lowered.results[0], found) if lowered.results else Known(None)

    def function(self, function: FunctionType, arguments: tuple[types.Type | Operand, ...]) -> Lowered:
        """Return a function for arguments of these types, or for these known ones."""
        key = (function, arguments)
        if key not in self._lowered:
            self._lowered[key] = None
            self._lowered[key] = Body(self, function, arguments).lower()
        found = self._lowered[key]
        if found is None:
            raise Refused(f"{function.__qualname__} calls itself")
        return found

    def _call_intrinsic(self, b: ir.IRBuilder, callee: Intrinsic, given: list[Operand]) -> Operand:
        numbers = [typed(one) for one in given]
        try:
            signature, emit = callee.typing(None, *(one.kind for one in numbers))
        except TypeError as error:
            raise Refused(f"{callee.__name__}: {error}") from error
        if len(signature.args) != len(numbers):
            raise Refused(f"{callee.__name__} has {len(signature.args)} arguments, not {len(numbers)}")
        values = [cast(b, one, kind) for one, kind in zip(numbers, signature.args, strict=True)]
        found = emit(self._context, b, signature, values)
        return Known(None) if signature.result == types.void else Typed(signature.result, found)


def _defaults(function: FunctionType, given: int) -> list[Known]:
    """Return the defaults of the arguments behind those that are given."""
    code, defaults = function.__code__, function.__defaults__ or ()
    missing = code.co_argcount - given
    return [Known(value) for value in defaults[len(defaults) - missing :]] if 0 < missing <= len(defaults) else []
