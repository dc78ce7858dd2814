"""ONNX's interface of backends: `prepare`, `run_model`, `run_node`, `supports_device`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from .errors import InvalidArgument
from .options import SessionOptions
from .session import InferenceSession


class PoolrtBackendRep(BackendRep):
    """A prepared model: a session, and its outputs as a tuple with names."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run on arrays: a dict by name, a list in the order of the model's inputs, or the only one."""
        names = [each.name for each in self.session.get_inputs()]
        if not isinstance(inputs, Mapping):
            given = list(inputs) if isinstance(inputs, Sequence) else [inputs]
            if len(given) != len(names):
                raise InvalidArgument(f"inputs: expect {len(names)} ({', '.join(names)}), got {len(given)}")
            inputs = dict(zip(names, given, strict=True))
        outputs = [each.name for each in self.session.get_outputs()]
        found: tuple[Any, ...] = namedtupledict("Outputs", outputs)(*self.session.run(None, inputs))
        return found


class PoolrtBackend(Backend):
    """Runs models in this process. Devices: ``CPU``."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Return whether a device is there and all of a model's operators are."""
        try:
            cls.prepare(model, device, **kwargs)
        except ValueError:
            return False
        return True

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> PoolrtBackendRep:
        """Return a model as one that runs. Keywords are those of `InferenceSession`; raises its errors."""
        if not cls.supports_device(device):
            raise InvalidArgument(f"device: expect 'CPU', got {device!r}")
        return PoolrtBackendRep(InferenceSession(model, kwargs.pop("sess_options", None) or _options(), **kwargs))

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Prepare a model and run it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one node on arrays in order, or by name; ``outputs_info`` are types and shapes of its results.

        ``opset_version`` is the version of the operator set (default: the newest that the onnx package has).
        """
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        names = [name for name in dict.fromkeys(node.input) if name]
        given = inputs if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=True))
        arrays: dict[str, NDArray[Any]] = {name: np.asarray(given[name]) for name in names}
        declared = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in arrays.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        for value, (dtype, shape) in zip(outputs, outputs_info or (), strict=False):
            kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            value.CopyFrom(helper.make_tensor_value_info(value.name, kind, shape))
        graph = helper.make_graph([node], "node", declared, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, opset)])
        return cls.run_model(model, arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether the backend computes on a device: ``CPU``, with or without an index of 0."""
        return device.upper() in ("CPU", "CPU:0")


def _options() -> SessionOptions:
    options = SessionOptions()
    # Threads would be started for each model.
    options.intra_op_num_threads = 1
    return options


is_compatible = PoolrtBackend.is_compatible
prepare = PoolrtBackend.prepare
run_model = PoolrtBackend.run_model
run_node = PoolrtBackend.run_node
supports_device = PoolrtBackend.supports_device
