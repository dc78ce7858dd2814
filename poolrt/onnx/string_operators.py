"""Operators that look into strings: casts, those that ONNX defines for strings only, and Gather, which ends classifiers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from poolrt.graph.errors import UnsupportedNode
from poolrt.graph.onnx.domains import ML_DOMAIN
from poolrt.graph.onnx.model_file import tensor

from .errors import Fail, InvalidGraph, not_implemented
from .strings import STRING, dtype_of_number, number_of_array, string_tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]
    Compute: TypeAlias = Callable[[Sequence[Array]], Sequence[Array]]

_CHANGES: Final[Mapping[str, Callable[[str], str]]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
_WHOLE: Final = re.compile(r"[+-]?\d+", re.ASCII)
_DECIMAL: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(inf|infinity|nan)", re.ASCII | re.IGNORECASE)
#: Digits of a whole number beyond which it has no type.
_MOST_DIGITS: Final = 40


def make_operator(node: Any, opset: int) -> Compute:
    """Return what computes the results of a node from its operands, which has one of `OPERATORS` or `LEARNED`.

    Raises InvalidGraph for attributes that are not valid, NotImplemented for what poolrt does not have.
    """
    compute: Compute = (LEARNED if is_learned(node) else OPERATORS)[node.op_type](node, opset)
    return compute


def is_learned(node: Any) -> bool:
    """Return whether a node has one of `LEARNED`."""
    return node.domain == ML_DOMAIN and node.op_type in LEARNED


def label(node: Any) -> str:
    """Return the name of a node for messages."""
    return f"node {node.name or next(iter(node.output), '')!r} ({node.op_type})"


def attributes(node: Any) -> dict[str, Any]:
    """Return the numbers, texts and lists among a node's attributes. Raises InvalidGraph for a text that is not UTF-8."""
    found: dict[str, Any] = {}
    for each in node.attribute:
        try:
            if each.HasField("i"):
                found[each.name] = each.i
            elif each.HasField("s"):
                found[each.name] = each.s.decode("utf-8")
            else:
                found[each.name] = list(each.ints) or [text.decode("utf-8") for text in each.strings]
        except UnicodeDecodeError as error:
            raise InvalidGraph(f"{label(node)}: attribute {each.name} is not UTF-8: {error}") from error
    return found


def _cast(node: Any, opset: int) -> Compute:
    wanted = attributes(node).get("to", 0)
    if dtype_of_number(wanted) is None:
        raise InvalidGraph(f"{label(node)}: attribute to is {wanted}, which is no type of arrays")
    return lambda operands: [_converted(node, operands[0], wanted)]


def _cast_like(node: Any, opset: int) -> Compute:
    return lambda operands: [_converted(node, operands[0], number_of_array(operands[1]))]


def _converted(node: Any, array: Array, wanted: int) -> Array:
    """Return strings as numbers, or numbers as strings."""
    if wanted == STRING:
        return array if array.dtype == object else _each(_shown, [array])
    dtype = dtype_of_number(wanted)
    if dtype is None or array.dtype.kind != "O":
        raise InvalidGraph(f"{label(node)}: a tensor of {array.dtype} cannot become one of type {wanted} here")
    parse: Callable[[str], Any] = _parse_whole if dtype.kind in "iub" else _parse_decimal
    found: Array = np.empty(array.shape, dtype)
    flat = found.reshape(-1)
    for place, text in enumerate(array.reshape(-1).tolist()):
        value = parse(text.strip())
        if value is None:
            raise Fail(f"{label(node)}: {text!r:.80} is no {dtype.name}")
        with np.errstate(over="ignore"):
            flat[place] = (
                value != 0 if dtype.kind == "b" else _wrapped(int(value), dtype) if dtype.kind in "iu" else value
            )
    return found


def _parse_whole(text: str) -> int | None:
    if not _WHOLE.fullmatch(text):
        # ONNX gives 100 for the text 100.5.
        value = _parse_decimal(text)
        return int(value) if value is not None and math.isfinite(value) and abs(value) < 2**64 else None
    value = int(text) if len(text) <= _MOST_DIGITS else None
    return value if value is not None and -(2**63) <= value < 2**64 else None


def _parse_decimal(text: str) -> float | None:
    return float(text) if _DECIMAL.fullmatch(text) else None


def _wrapped(value: int, dtype: np.dtype[Any]) -> Any:
    """Return a number of up to 64 bits in a type, without the bits that it does not have."""
    return np.uint64(value % 2**64).astype(dtype)


def _shown(value: Any) -> str:
    """Return a number as ONNX Runtime writes it: floats with eight digits at most."""
    if isinstance(value, bool | np.bool_):
        return str(int(value))
    if isinstance(value, int | np.integer):
        return str(value)
    number = float(value)
    if math.isnan(number):
        return "NaN"
    return f"{number:.8g}" if math.isfinite(number) else "INF" if number > 0 else "-INF"


def _concat(node: Any, opset: int) -> Compute:
    def compute(operands: Sequence[Array]) -> list[Array]:
        first, second = operands
        return [_each(str.__add__, _broadcast(node, first, second))]

    return compute


def _broadcast(node: Any, *arrays: Array) -> Sequence[Array]:
    try:
        found: Sequence[Array] = np.broadcast_arrays(*arrays)
        return found
    except ValueError:
        shapes = " and ".join(str(each.shape) for each in arrays)
        raise InvalidGraph(f"{label(node)}: shapes {shapes} do not go together") from None


def _split(node: Any, opset: int) -> Compute:
    given = attributes(node)
    delimiter, most = given.get("delimiter") or None, given.get("maxsplit", -1)

    def compute(operands: Sequence[Array]) -> list[Array]:
        (texts,) = operands
        parts = [text.split(delimiter, most) for text in texts.reshape(-1).tolist()]
        counts = np.array([len(each) for each in parts], np.int64)
        width = int(counts.max(initial=0))
        found = np.full((len(parts), width), "", object)
        for row, each in zip(found, parts, strict=True):
            row[: len(each)] = each
        return [found.reshape((*texts.shape, width)), counts.reshape(texts.shape)]

    return compute


def _normalize(node: Any, opset: int) -> Compute:
    given = attributes(node)
    action = given.get("case_change_action", "NONE")
    if action not in _CHANGES:
        known = ", ".join(_CHANGES)
        raise InvalidGraph(f"{label(node)}: attribute case_change_action is {action!r}; expect one of {known}")
    is_exact = bool(given.get("is_case_sensitive", 0))
    words = given.get("stopwords", [])
    stopped = set(words) if is_exact else {_by_character(str.lower, each) for each in words}

    def compute(operands: Sequence[Array]) -> list[Array]:
        (texts,) = operands
        if texts.ndim not in (1, 2) or (texts.ndim == 2 and texts.shape[0] != 1) or not texts.size:
            shape = texts.shape
            raise InvalidGraph(f"{label(node)}: expect strings of shape (C,) or (1, C) with C above 0, got {shape}")
        kept = [
            _by_character(_CHANGES[action], each)
            for each in texts.reshape(-1).tolist()
            if (each if is_exact else _by_character(str.lower, each)) not in stopped
        ]
        found = np.empty(max(1, len(kept)), object)
        found[:] = kept or [""]
        return [found.reshape((1, -1)) if texts.ndim == 2 else found]

    return compute


def _by_character(change: Callable[[str], str], text: str) -> str:
    """Return a text with the case of each character changed that has one character in the other case, as in C."""
    if text.isascii():
        return change(text)
    changed = map(change, text)
    return "".join(new if len(new) == 1 else old for old, new in zip(text, changed, strict=True))


def _gather(node: Any, opset: int) -> Compute:
    axis = attributes(node).get("axis", 0)

    def compute(operands: Sequence[Array]) -> list[Array]:
        texts, places = operands
        if not -texts.ndim <= axis < texts.ndim or places.dtype.kind != "i":
            raise InvalidGraph(f"{label(node)}: axis {axis} and places of {places.dtype} for strings of {texts.shape}")
        size, along = texts.shape[axis], axis % texts.ndim
        shape = (*texts.shape[:along], *places.shape, *texts.shape[along + 1 :])
        places = np.where(places < 0, places + size, places).reshape(-1)
        is_lost = (places < 0) | (places >= size)
        if not is_lost.any():
            return [texts.take(places, along).reshape(shape)]
        # There is no text at these places, as there is no number in plans.
        end = np.full((*texts.shape[:along], 1, *texts.shape[along + 1 :]), "", object)
        return [np.concatenate([texts, end], along).take(np.where(is_lost, size, places), along).reshape(shape)]

    return compute


def _match(node: Any, opset: int) -> Compute:
    try:
        import re2
    except ImportError as error:
        reason = f"regular expressions need the google-re2 package: pip install 'poolrt[strings]' ({error})"
        raise not_implemented(UnsupportedNode(node.name, node.op_type, opset, reason)) from error
    pattern = attributes(node).get("pattern", "")
    options = re2.Options()
    options.log_errors = False
    try:
        matches = re2.compile(pattern, options).fullmatch
    except re2.error as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else error
        raise InvalidGraph(f"{label(node)}: attribute pattern is {pattern!r:.200}: {reason}") from error
    return lambda operands: [_each(lambda text: matches(text) is not None, operands[:1], np.bool_)]


def _encode_columns(node: Any, opset: int) -> Compute:
    given = attributes(node)
    places = {text: place for place, text in enumerate(given.get("cats_strings", []))}
    if not places:
        raise InvalidGraph(f"{label(node)}: attribute cats_strings is missing; its input is strings")
    is_lenient = bool(given.get("zeros", 1))

    def compute(operands: Sequence[Array]) -> list[Array]:
        (texts,) = operands
        found: Array = np.zeros((texts.size, len(places)), np.float32)
        for row, text in zip(found, texts.reshape(-1).tolist(), strict=True):
            if text in places:
                row[places[text]] = 1
            elif not is_lenient:
                raise Fail(f"{label(node)}: {text!r:.80} is no category")
        return [found.reshape((*texts.shape, len(places)))]

    return compute


def _encode_labels(node: Any, opset: int) -> Compute:
    given = {each.name: each for each in node.attribute}
    # Version 1 has classes instead of keys, and their numbers as values.
    keys = attributes(node).get("keys_strings", []) or attributes(node).get("classes_strings", [])
    if "keys_tensor" in given and given["keys_tensor"].t.data_type == STRING:
        keys = string_tensor(given["keys_tensor"].t).reshape(-1).tolist()
    values = np.arange(len(keys)) if "classes_strings" in given else _listed_values(given)
    if not keys or values is None:
        raise InvalidGraph(f"{label(node)}: expect keys of strings and values of numbers; its input is strings")
    if values.size != len(keys):
        raise InvalidGraph(f"{label(node)}: {len(keys)} keys for {values.size} values")
    usual: Any = {"i": -1, "f": -0.0}.get(values.dtype.kind, 0)
    if "default_tensor" in given:
        usual = tensor(given["default_tensor"].t, None).reshape(-1)[0]
    elif values.dtype == np.int64 and "default_int64" in given:
        usual = given["default_int64"].i
    elif values.dtype == np.float32 and "default_float" in given:
        usual = given["default_float"].f
    # The first of equal keys counts.
    table = dict(reversed(list(zip(keys, values.tolist(), strict=True))))
    return lambda operands: [_each(lambda text: table.get(text, usual), operands[:1], values.dtype.type)]


def _listed_values(given: Mapping[str, Any]) -> Array | None:
    """Return the values of a LabelEncoder, None if they are no numbers."""
    if "values_int64s" in given:
        return np.asarray(given["values_int64s"].ints, np.int64)
    if "values_floats" in given:
        return np.asarray(given["values_floats"].floats, np.float32)
    if "values_tensor" in given and given["values_tensor"].t.data_type != STRING:
        return tensor(given["values_tensor"].t, None).reshape(-1)
    return None


def _each(change: Callable[..., Any], arrays: Sequence[Array], dtype: type = object) -> Array:
    """Return the results of a function for each element of arrays of one shape."""
    found: Array = np.empty(arrays[0].shape, dtype)
    flat = found.reshape(-1)
    for place, elements in enumerate(zip(*(each.reshape(-1) for each in arrays), strict=True)):
        flat[place] = change(*elements)
    return found


OPERATORS: Final[Mapping[str, Callable[[Any, int], Compute]]] = {
    "Cast": _cast,
    "CastLike": _cast_like,
    "Gather": _gather,
    "RegexFullMatch": _match,
    "StringConcat": _concat,
    "StringNormalizer": _normalize,
    "StringSplit": _split,
}
#: Operators of `ML_DOMAIN` that read strings and give numbers.
LEARNED: Final[Mapping[str, Callable[[Any, int], Compute]]] = {
    "LabelEncoder": _encode_labels,
    "OneHotEncoder": _encode_columns,
}
