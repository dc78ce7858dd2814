"""What Python's operators say on a tensor of a graph, which holds no data: the operation of `Graph` to use instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn

#: Method of Python -> the operator, and what to write instead, with ``g`` for the graph.
_INSTEAD: Final = {
    "__add__": ("+", "g.binary(a, b, 'add')"), "__sub__": ("-", "g.binary(a, b, 'sub')"),
    "__mul__": ("*", "g.binary(a, b, 'mul')"), "__truediv__": ("/", "g.binary(a, b, 'div')"),
    "__matmul__": ("@", "g.matmul(a, b)"), "__pow__": ("**", "g.eltwise(a, 'pow', 1, exponent)"),
    "__neg__": ("-", "g.eltwise(a, 'linear', -1)"), "__abs__": ("abs", "g.eltwise(a, 'abs')"),
    "__gt__": (">", "g.binary(a, b, 'gt')"), "__ge__": (">=", "g.binary(a, b, 'ge')"),
    "__lt__": ("<", "g.binary(a, b, 'lt')"), "__le__": ("<=", "g.binary(a, b, 'le')"),
    "__getitem__": ("[]", "g.slice(a, starts, ends, axes)"),
}  # fmt: skip
#: Those with a form for a tensor on the right of something else.
_REFLECTED: Final = ("add", "sub", "mul", "truediv", "matmul", "pow")
_NO_DATA: Final = "a Value is a tensor of a graph and holds no data"


class ValueOperators:
    """Base of `Value`: every operator raises TypeError that names the operation of `Graph` to use instead.

    Type checkers do not see the operators, so they refuse them too.
    """

    __slots__ = ()

    if not TYPE_CHECKING:
        #: Otherwise `__getitem__` would make it iterable.
        __iter__ = None

        def __array__(self, *_: object, **__: object) -> NoReturn:
            raise TypeError(f"{_NO_DATA}: load the graph, run the model and use its outputs")

        def __array_ufunc__(self, ufunc: Any, *_: object, **__: object) -> NoReturn:
            raise TypeError(f"{_NO_DATA}: NumPy's {ufunc.__name__} does not take it; use an operation of Graph")

    def __init_subclass__(cls) -> None:
        for name, (operator, instead) in _INSTEAD.items():
            setattr(cls, name, _refusal(operator, instead))
        for name in _REFLECTED:
            setattr(cls, f"__r{name}__", _refusal(*_INSTEAD[f"__{name}__"]))


def _refusal(operator: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(*_: object) -> NoReturn:
        raise TypeError(f"a Value has no operator {operator}: write {instead} on its graph g")

    return refuse
