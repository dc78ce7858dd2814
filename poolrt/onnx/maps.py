"""`ZipMap`, with which converters of scikit-learn end classifiers: each row of chances becomes a dict of them by label.

Plans compute the chances, as a tensor; a session makes the dicts of it at the end of a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from poolrt.graph.onnx.domains import ML_DOMAIN
from poolrt.graph.onnx.model_file import onnx_package

from .errors import InvalidGraph

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Labels: TypeAlias = tuple[int, ...] | tuple[str, ...]
    Maps: TypeAlias = list[dict[int, float]] | list[dict[str, float]]


def take_maps(graph: Any) -> dict[str, Labels]:
    """Make the outputs of a GraphProto that ``ZipMap`` computes tensors; return the labels of their columns by name.

    Raises InvalidGraph for one without labels, or with both kinds of them.
    """
    onnx = onnx_package()
    declared = {each.name: each for each in graph.output}
    read = {name for node in graph.node for name in node.input}
    found: dict[str, Labels] = {}
    for node in graph.node:
        if node.domain != ML_DOMAIN or node.op_type != "ZipMap" or len(node.input) != 1 or len(node.output) != 1:
            continue
        name = node.output[0]
        if name not in declared or name in read:
            continue
        found[name] = _labels(node)
        node.CopyFrom(onnx.helper.make_node("Identity", list(node.input), [name], node.name))
        declared[name].ClearField("type")
        declared[name].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return found


def type_of_maps(labels: Labels) -> str:
    """Return ONNX Runtime's name of the type of an output of maps."""
    return f"seq(map({'string' if isinstance(labels[0], str) else 'int64'},tensor(float)))"


def make_maps(name: str, chances: NDArray[Any], labels: Labels) -> Maps:
    """Return a dict for each row of the tensor of an output: its numbers by label, in the order of the labels.

    Raises InvalidGraph for rows of another number of columns.
    """
    if chances.ndim not in (1, 2) or chances.shape[-1] != len(labels):
        raise InvalidGraph(f"output {name}: ZipMap has {len(labels)} labels for a tensor of shape {chances.shape}")
    columns = chances.reshape(-1, len(labels)).T.tolist()
    empty: dict[Any, Any] = dict.fromkeys(sorted(labels))
    # Copies that are filled a column at a time take a third to two thirds of the time of dicts made a row at a time.
    found = [empty.copy() for _ in columns[0]]
    for key, column in zip(labels, columns, strict=True):
        for each, chance in zip(found, column, strict=True):
            each[key] = chance
    return found


def _labels(node: Any) -> Labels:
    given = {each.name: each for each in node.attribute}
    numbers = tuple(given["classlabels_int64s"].ints) if "classlabels_int64s" in given else ()
    texts = tuple(given["classlabels_strings"].strings) if "classlabels_strings" in given else ()
    if bool(numbers) == bool(texts):
        raise InvalidGraph(f"node {node.name or node.output[0]!r} (ZipMap): expect labels, of numbers or of texts")
    try:
        return numbers or tuple(each.decode("utf-8") for each in texts)
    except UnicodeDecodeError as error:
        raise InvalidGraph(f"node {node.name or node.output[0]!r} (ZipMap): a label is not UTF-8: {error}") from error
