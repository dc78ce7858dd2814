"""What a model takes and returns, as ONNX Runtime describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from poolrt.cachestore.deferred_dataclass import dataclass
from poolrt.graph.onnx.element_types import label

from .strings import dtype_of_number

if TYPE_CHECKING:
    import numpy as np

    Dims = list[int | str | None]

#: TensorProto.DataType -> its name in ONNX Runtime's types, where it is not ONNX's in lower case.
_NAMES: Final = {1: "float", 11: "double"}
#: The version of a model that has none, in ONNX Runtime.
_NO_VERSION: Final = (1 << 63) - 1


@dataclass(frozen=True)
class NodeArg:
    """An input or output: its name, its type such as ``tensor(float)``, and its shape.

    A size of the shape is a number, the name of a symbol, or None for one that is open and has no name.
    """

    name: str
    type: str
    shape: Dims

    def __repr__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """A model's description of itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output as a session checks it: ``dims`` is None if the model gives no shape, else as in a NodeArg."""

    name: str
    element_type: int
    type: str
    dims: Dims | None

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The NumPy type of its arrays (bfloat16 is that of ml_dtypes, strings are objects); None for what is in no array."""
        return dtype_of_number(self.element_type)

    def node_arg(self) -> NodeArg:
        """Return its description for users."""
        return NodeArg(self.name, self.type, list(self.dims or ()))

    @classmethod
    def of(cls, declared: Any, overrides: Mapping[str, int], by_denotation: Mapping[str, int]) -> Port:
        """Return the port of a ValueInfoProto; overrides fix the sizes of symbols and denotations."""
        kind = declared.type.WhichOneof("value")
        if kind != "tensor_type":
            return cls(declared.name, 0, str(kind or "").removesuffix("_type"), None)
        found = declared.type.tensor_type
        dims: Dims | None = None
        if found.HasField("shape"):
            dims = [_size(dim, overrides, by_denotation) for dim in found.shape.dim]
        return cls(declared.name, found.elem_type, tensor_type(found.elem_type), dims)


def tensor_type(number: int) -> str:
    """Return ONNX Runtime's name of the tensors of a TensorProto.DataType."""
    return f"tensor({_NAMES.get(number) or label(number).lower()})"


def metadata(proto: Any) -> ModelMetadata:
    """Return the metadata of a ModelProto."""
    entries = {each.key: each.value for each in proto.metadata_props}
    version = proto.model_version if proto.HasField("model_version") else _NO_VERSION
    texts = proto.producer_name, proto.graph.name, proto.domain, proto.doc_string, proto.graph.doc_string
    return ModelMetadata(*texts, version, entries)


def _size(dim: Any, overrides: Mapping[str, int], by_denotation: Mapping[str, int]) -> int | str | None:
    if dim.HasField("dim_value"):
        # A size below 1 is how some exporters write an open one.
        return dim.dim_value if dim.dim_value >= 0 else None
    if dim.denotation in by_denotation:
        return by_denotation[dim.denotation]
    return overrides.get(dim.dim_param, dim.dim_param or None)
