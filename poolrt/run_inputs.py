"""The inputs of a run: each is checked against its input of the model, and an error says what the model takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from .spelling import describe_type, hint

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .model import TensorSpec

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
        raise ValueError(_describe_names(model, specs, inputs))
    arrays = []
    for spec in specs:
        value = inputs[spec.name]
        array = value if isinstance(value, numpy.ndarray) else _to_array(model, spec, value)
        if array.dtype != spec.array_dtype:
            if array.dtype.name != spec.dtype:
                wanted = spec.dtype if spec.dtype == spec.array_dtype else f"{spec.dtype} or {spec.array_dtype}"
                raise TypeError(
                    f"input {spec.name} of model {model} must be of dtype {wanted}, got {array.dtype}; "
                    f"convert it: array.astype({spec.array_dtype!r})"
                )
            array = array.view(spec.array_dtype)
        if array.shape != spec.shape:
            raise ValueError(f"input {spec.name} of model {model} must be of shape {spec.shape}, got {array.shape}")
        arrays.append(array)
    return arrays


def refuse_unnamed(model: str, specs: Sequence[TensorSpec], unnamed: Sequence[object]) -> None:
    """Raise TypeError if there are inputs without names."""
    if unnamed:
        names = [spec.name for spec in specs]
        call = ", ".join(f"{name}=..." for name in names)
        if isinstance(unnamed[0], Mapping) or not all(name.isidentifier() for name in names):
            call = "**inputs"
        raise TypeError(f"model {model} takes its inputs by name: {', '.join(names)}; write run({call})")


def suggest_method(name: str, kind: type) -> str:
    """Return the end of a message about an attribute that a model does not have."""
    if name.startswith("_"):
        return ""
    if name in _RUNS:
        return "; write run(x=...), with its inputs by name"
    return hint(
        name, [*(each for each in dir(kind) if not each.startswith("_")), "inputs", "outputs", "name", "report"]
    )


def _to_array(model: str, spec: TensorSpec, value: object) -> NDArray[Any]:
    import numpy

    try:
        if value is None:
            raise TypeError
        array: NDArray[Any] = numpy.asarray(value, spec.array_dtype)
    except (TypeError, ValueError, OverflowError) as error:
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(
            f"input {spec.name} of model {model} must be an array of dtype {spec.array_dtype} and shape {spec.shape}, "
            f"got {describe_type(value)}{f' ({error})' if str(error) else ''}"
        ) from error
    return array


def _describe_names(model: str, specs: Sequence[TensorSpec], inputs: Mapping[str, Any]) -> str:
    wanted = ", ".join(f"{spec.name} {spec.dtype}{list(spec.shape)}" for spec in specs)
    text = f"model {model} takes the inputs {wanted}; given: {', '.join(map(str, inputs)) or 'none'}"
    missing = [spec.name for spec in specs if spec.name not in inputs]
    unknown = [name for name in inputs if name not in {spec.name for spec in specs}]
    if missing:
        text += f"; missing: {', '.join(missing)}"
    if unknown:
        text += f"; unknown: {', '.join(map(str, unknown))}{hint(unknown[0], missing)}"
    return text
