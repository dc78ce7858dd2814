"""Types of the values that kernels compute with.

A type that is called with the types of arguments is the signature of a function with a result of that type.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import llvmlite.ir as ir


class Type:
    """A type with a name, by which types are equal, and the LLVM type of its values."""

    __slots__ = ("lowered", "name")

    def __init__(self, name: str, lowered: ir.Type) -> None:
        self.name = name
        self.lowered = lowered

    def __call__(self, *arguments: Type) -> Signature:
        return Signature(self, arguments)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Type) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name


class Integer(Type):
    """A type of whole numbers."""

    __slots__ = ()


class Boolean(Type):
    """The type of truth values."""

    __slots__ = ()


class Float(Type):
    """A type of floating-point numbers."""

    __slots__ = ()


class Signature(NamedTuple):
    """The type of a function's result, and those of its arguments."""

    result: Type
    args: tuple[Type, ...]


int64: Final = Integer("int64", ir.IntType(64))
boolean: Final = Boolean("boolean", ir.IntType(1))
float32: Final = Float("float32", ir.FloatType())
float64: Final = Float("float64", ir.DoubleType())
voidptr: Final = Type("voidptr", ir.IntType(8).as_pointer())
void: Final = Type("void", ir.VoidType())
