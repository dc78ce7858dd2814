"""What the public classes of operations are: each makes descriptors, and primitive descriptors for an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

T = TypeVar("T")
#: Values of a field that descriptors keep as a tuple.
Items: TypeAlias = tuple[T, ...] | list[T]


class Operation(type):
    """Makes instances of the descriptor that a public class adds `PrimitiveDesc` to.

    `poolrt.Matmul(...)` is a `desc.Matmul`, so what a user makes and what a graph makes are equal, hash alike and have one
    key and one wire form. For `isinstance` every descriptor is one of its public class.
    """

    if not TYPE_CHECKING:  # type checkers see an ordinary subclass

        def __call__(cls, *args: Any, **named: Any) -> Any:
            return cls.__base__(*args, **named)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__mro__[1])
