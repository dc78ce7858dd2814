"""Calls of kernels that a user has written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


from poolrt.workers.desc import data_type
from poolrt.workers.desc.typed import shorten, to_integer

from ..ir import Attribute
from ..node_builder import NodeBuilder
from ..user_kernels import NUMBERS, NativeKernel, OpenClKernel, kernel_of
from ..values import Operand, Size, Value, parse_dtype
from .family import Family

#: Work-items of a group of an OpenCL kernel, at most, unless the user says how many.
_GROUP: Final = 64


class Calls(Family):
    """Calls of native kernels, on the processor, and of OpenCL kernels."""

    def call(
        self,
        kernel: Any,
        inputs: Sequence[Operand],
        outputs: Sequence[tuple[Sequence[int], DTypeLike | str]],
        *,
        scalars: Sequence[int | float] = (),
        work: int | None = None,
        global_size: int | Sequence[int] | None = None,
        local_size: int | Sequence[int] | None = None,
        name: str | None = None,
        engine: str | None = None,
    ) -> Any:
        """Call a kernel of your own; return its result, a `Value`, or a tuple of them if it has several.

        ``kernel`` is a `NativeKernel`, an `OpenClKernel`, or an object that has one. It gets the inputs, the outputs and the
        scalars in this order, arrays row-major; a native kernel gets them as its signature orders arrays and numbers. ``outputs``
        are pairs of shape and data type, and have any content before the call. A native kernel that takes ranges is called
        over parts of ``work`` items, by default the first dimension of the first output. One of OpenCL is enqueued over
        ``global_size``, by default one work-item for each element of the first output, in groups of ``local_size``. Numbers
        that are made by `Value.size` follow the shapes of a run.

        Code of a kernel runs with all rights of the workers: the setting ``functions`` can refuse it. A kernel that raises
        fails the run with an error that names node and function.
        """
        with self._build("call", name, engine) as node:
            found = kernel_of(kernel)
            _require_lists(inputs, outputs)
            native = found if isinstance(found, NativeKernel) else None
            if native is not None:
                _check_counts(native, len(inputs), len(outputs), len(scalars))
            values = _operands(node, native, inputs)
            sizes = _Sizes(values)
            results = tuple(_result(number, each, sizes) for number, each in enumerate(outputs))
            if not values or not results:
                raise ValueError("inputs, outputs: expect at least one of each")
            attrs: dict[str, Attribute] = {"function": found.name, "results": results}
            if isinstance(found, NativeKernel):
                _require_none(("global_size", global_size), ("local_size", local_size))
                if work is not None and not found.ranged:
                    raise ValueError(f"work: {found.name} takes no range, so it is called once")
                attrs |= {"code": _pieces(found.code), "isa": found.isa}
                attrs["args"] = tuple(_native_arguments(found, values, results, scalars, sizes))
                if found.ranged:
                    attrs["work"] = _first(results) if work is None else sizes.text("work", work)
            else:
                _require_none(("work", work))
                attrs |= _opencl_attributes(found, values, results, scalars, sizes)
                attrs |= _nd_range(results, global_size, local_size, sizes)
            made = node.add_all(values, **attrs)
        return made[0] if len(made) == 1 else made


class _Sizes:
    """The form of sizes in descriptors: a `Size` of an input refers to it, other integers are themselves."""

    def __init__(self, values: Sequence[Value]) -> None:
        self._owner = values[0].owner if values else None
        self._numbers = {value.id: number for number, value in reversed([*enumerate(values)])}

    def text(self, argument: str, given: object) -> str:
        """Return the form of a size. Raises ValueError if it is negative, no integer, or of a value that is no input."""
        if isinstance(given, Size):
            # As a plain integer it would be wrong for inputs of other shapes, and the kernel would leave its arrays.
            if given.value.id not in self._numbers or given.value.owner is not self._owner:
                raise ValueError(f"{argument}: expect the size of an input of this call, got that of another value")
            return f"src{self._numbers[given.value.id]}.{given.axis}"
        size = to_integer(argument, given)
        if size < 0:
            raise ValueError(f"{argument}: expect at least 0, got {size}")
        return str(size)


def _require_lists(inputs: Any, outputs: Any) -> None:
    """Raise ValueError if one input or output stands in place of a list of them."""
    if not isinstance(inputs, (list, tuple)):
        raise ValueError(f"inputs: expect a list, such as [x], got {type(inputs).__name__}")
    if not isinstance(outputs, (list, tuple)) or (len(outputs) == 2 and isinstance(outputs[1], str)):
        raise ValueError('outputs: expect a list of pairs, such as [((4, 8), "float32")]')


def _check_counts(kernel: NativeKernel, inputs: int, outputs: int, scalars: int) -> None:
    arrays = [kind for kind in kernel.parameters if kind not in NUMBERS]
    if inputs + outputs != len(arrays):
        text = f"{kernel.name} takes {len(arrays)} arrays, got {inputs} inputs and {outputs} outputs"
        raise ValueError(f"inputs, outputs: {text}")
    if scalars != len(kernel.parameters) - len(arrays):
        raise ValueError(f"scalars: {kernel.name} takes {len(kernel.parameters) - len(arrays)}, got {scalars}")


def _operands(node: NodeBuilder, kernel: NativeKernel | None, inputs: Sequence[Operand]) -> list[Value]:
    """Return the values of the inputs, checked against the parameters of a native kernel."""
    if kernel is None:
        return node.many("inputs", inputs)
    arrays = [kind for kind in kernel.parameters if kind not in NUMBERS]
    values = []
    for number, (given, kind) in enumerate(zip(inputs, arrays, strict=False)):
        value = node.operand(f"inputs[{number}]", given, kind.partition(":")[0])
        _check_array(f"inputs[{number}]", kernel, kind, data_type(value.dtype), value.ndim)
        values.append(value)
    return values


def _check_array(argument: str, kernel: NativeKernel, kind: str, dtype: str, ndim: int) -> None:
    if kind != f"{dtype}:{ndim}":
        wanted, _, rank = kind.partition(":")
        raise ValueError(f"{argument}: {kernel.name} takes {wanted} of rank {rank}, got {dtype} of rank {ndim}")


def _result(number: int, given: Any, sizes: _Sizes) -> str:
    """Return data type and sizes of a result as a descriptor has them."""
    argument = f"outputs[{number}]"
    try:
        shape, dtype = given
        each = list(shape)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{argument}: expect a shape and a data type, got {shorten(given)}") from error
    try:
        return " ".join([parse_dtype(dtype), *(sizes.text("shape", size) for size in each)])
    except ValueError as error:
        raise ValueError(f"{argument}: {error}") from error


def _native_arguments(
    kernel: NativeKernel, values: Sequence[Value], results: Sequence[str], scalars: Sequence[int | float], sizes: _Sizes
) -> Iterator[str]:
    """Yield the arguments in the order of the kernel's parameters: an address and dimensions for each array."""
    places = [("src", number, value.ndim) for number, value in enumerate(values)]
    places += [("dst", number, text.count(" ")) for number, text in enumerate(results)]
    arrays, numbers = iter(places), iter(enumerate(scalars))
    for kind in kernel.parameters:
        if kind in NUMBERS:
            yield _number(*next(numbers), sizes, kind)
            continue
        role, number, ndim = next(arrays)
        if role == "dst":
            _check_array(f"outputs[{number}]", kernel, kind, results[number].partition(" ")[0], ndim)
        yield f"{role} {number}"
        yield from (f"int {role}{number}.{axis}" for axis in range(ndim))


def _number(position: int, given: object, sizes: _Sizes, kind: str = "") -> str:
    """Return a scalar as a descriptor has it; ``kind`` is what the kernel takes, if that is known."""
    argument = f"scalars[{position}]"
    if not kind:
        kind = (
            "float" if isinstance(given, float) or getattr(getattr(given, "dtype", None), "kind", "") == "f" else "int"
        )
    if kind == "float":
        if isinstance(given, Size):
            raise ValueError(f"{argument}: a size needs a parameter that is an integer")
        try:
            return f"float {float(given)!r}"  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{argument}: expect a number, got {shorten(given)}") from error
    if isinstance(given, Size):
        return f"int {sizes.text(argument, given)}"
    return f"int {to_integer(argument, given)}"


def _opencl_attributes(
    kernel: OpenClKernel, values: Sequence[Value], results: Sequence[str], scalars: Sequence[int | float], sizes: _Sizes
) -> dict[str, Attribute]:
    args = [*(f"src {number}" for number in range(len(values))), *(f"dst {number}" for number in range(len(results)))]
    args += [_number(position, each, sizes) for position, each in enumerate(scalars)]
    return {"code": _pieces(kernel.source.encode()), "args": tuple(args), "options": kernel.options}


def _nd_range(results: Sequence[str], global_size: object, local_size: object, sizes: _Sizes) -> dict[str, Attribute]:
    """Return the ND-range: by default one dimension, in the largest groups of a power of two that divide it."""
    if global_size is None:
        count = results[0].count(" ")
        whole = ["*".join(f"dst0.{axis}" for axis in range(count)) or "1"]
    else:
        whole = [sizes.text("global_size", size) for size in _several(global_size)]
    if local_size is not None:
        return {
            "global_size": tuple(whole),
            "local_size": tuple(to_integer("local_size", n) for n in _several(local_size)),
        }
    if global_size is None:
        shape = results[0].split(" ")[1:]
        # Sizes that follow the shapes of a run may be any number.
        items = math.prod(int(size) if size.isdigit() else 1 for size in shape)
    else:
        items = int(whole[0]) if whole[0].isdigit() else 1
    return {"global_size": tuple(whole), "local_size": (math.gcd(items, _GROUP), *(1 for _ in whole[1:]))}


def _several(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (tuple, list)) else [given]


def _first(results: Sequence[str]) -> str:
    """Return the size that is the first dimension of the first result, 1 if it has none."""
    return "dst0.0" if " " in results[0] else "1"


def _require_none(*given: tuple[str, object]) -> None:
    for name, value in given:
        if value is not None:
            raise ValueError(f"{name}: a kernel of this kind takes none")


def _pieces(code: bytes) -> tuple[str, ...]:
    import base64

    from poolrt.workers.desc.operations.call import MOST_CODE, PIECE

    if len(code) > MOST_CODE:
        raise ValueError(f"kernel: its code has {len(code)} bytes, more than {MOST_CODE}")
    text = base64.b85encode(code).decode()
    return tuple(text[at : at + PIECE] for at in range(0, len(text), PIECE))
