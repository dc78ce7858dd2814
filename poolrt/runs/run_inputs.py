"""The inputs and outputs of a run by name: an error says which there are, and what each takes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NoReturn

from poolrt.spelling import describe_type, hint

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from poolrt.model import TensorSpec

#: What other libraries call `run`.
_RUNS: Final = frozenset(("predict", "forward", "infer", "evaluate", "execute", "call", "apply"))


def check_inputs(model: str, specs: Sequence[TensorSpec], inputs: object) -> list[NDArray[Any]]:
    """Return the inputs in order, as arrays of the right shape and data type.

    Raises ValueError for a wrong name or shape, and TypeError for a wrong data type or for no mapping.
    """
    import numpy

    if not isinstance(inputs, Mapping):
        raise TypeError(f"model {model} takes a dict of inputs by name for each run, got {describe_type(inputs)}")
    if len(inputs) != len(specs) or any(spec.name not in inputs for spec in specs):
        ports = {spec.name: f"{spec.name} {spec.dtype}{list(spec.shape)}" for spec in specs}
        raise ValueError(describe_names(f"model {model}", ports, inputs))
    arrays = []
    for spec in specs:
        value = inputs[spec.name]
        array = (
            value
            if isinstance(value, numpy.ndarray)
            else to_array(f"{spec.name} of model {model}", value, spec.array_dtype, spec.shape)
        )
        if array.dtype != _dtype(spec.array_dtype):
            if array.dtype.name != spec.dtype:
                wanted = spec.dtype if spec.dtype == spec.array_dtype else f"{spec.dtype} or {spec.array_dtype}"
                raise TypeError(
                    f"input {spec.name} of model {model} must be of dtype {wanted}, got {array.dtype}; "
                    f"convert it: array.astype({spec.array_dtype!r})"
                )
            # The same type in another byte order, or another library's bfloat16.
            array = array.astype(spec.array_dtype) if spec.dtype == spec.array_dtype else array.view(spec.array_dtype)
        if array.shape != spec.shape:
            raise ValueError(f"input {spec.name} of model {model} must be of shape {spec.shape}, got {array.shape}")
        arrays.append(array)
    return arrays


@lru_cache(64)
def _dtype(name: str) -> Any:
    """Return NumPy's data type: comparing with its name takes ten times as long."""
    import numpy

    return numpy.dtype(name)


def seconds_of(timeout: object) -> float:
    """Return a timeout as seconds. Raises TypeError for anything but a number."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout must be a number of seconds, got {describe_type(timeout)}")
    return float(timeout)


def refuse_unnamed(taker: str, names: Collection[str], unnamed: Sequence[object]) -> None:
    """Raise TypeError if there are inputs without names; ``taker`` is what takes them: ``model m``."""
    if unnamed:
        call = ", ".join(f"{name}=..." for name in names)
        if isinstance(unnamed[0], Mapping) or not all(name.isidentifier() for name in names):
            call = "**inputs"
        raise TypeError(f"{taker} takes its inputs by name: {', '.join(names)}; write run({call})")


def describe_names(taker: str, ports: Mapping[str, str], given: Iterable[object]) -> str:
    """Return the message for inputs of wrong names; ``ports`` holds a description of each input by name."""
    names = list(given)
    text = f"{taker} takes the inputs {', '.join(ports.values())}; given: {', '.join(map(str, names)) or 'none'}"
    missing = [name for name in ports if name not in names]
    unknown = [name for name in names if name not in ports]
    if missing:
        text += f"; missing: {', '.join(missing)}"
    if unknown:
        text += f"; unknown: {', '.join(map(str, unknown))}{hint(unknown[0], missing)}"
    return text


def to_array(port: str, value: object, dtype: str, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
    """Return a value that is no array as one; ``port`` names the input. Raises ValueError and TypeError that say so."""
    import numpy

    try:
        if value is None:
            raise TypeError
        array: NDArray[Any] = numpy.asarray(value, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        kind = ValueError if isinstance(error, ValueError) else TypeError
        expected = f"an array of dtype {dtype}{'' if shape is None else f' and shape {shape}'}"
        reason = f" ({error})" if str(error) else ""
        raise kind(f"input {port} must be {expected}, got {describe_type(value)}{reason}") from error
    return array


class Outputs(dict[str, Any]):
    """The outputs of a run by name; an unknown name raises KeyError that lists those that exist."""

    __slots__ = ()

    def __missing__(self, name: str) -> NoReturn:
        raise KeyError(f"there is no output {name!r}; there are: {', '.join(self)}{hint(name, self)}")


def suggest_method(name: str, kind: type) -> str:
    """Return the end of a message about an attribute that a model does not have."""
    if name.startswith("_"):
        return ""
    if name in _RUNS:
        return "; write run(x=...), with its inputs by name"
    return hint(
        name, [*(each for each in dir(kind) if not each.startswith("_")), "inputs", "outputs", "name", "report"]
    )
