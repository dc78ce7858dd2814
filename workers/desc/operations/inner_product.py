"""Inner product: a fully connected layer."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..memory_desc import MemoryDesc
from ..op_desc import FORWARD, OpDesc, one_of, require
from .weighted import weighted


@dataclass(frozen=True, slots=True)
class InnerProduct(OpDesc):
    """Multiply src (N, IC, ...) by the transpose of weights (OC, IC, ...); optional bias (OC,), dst (N, OC).

    Further dimensions of src and weights are equal and summed over. Backward, src, weights, bias and dst describe the
    gradients that take their places.
    """

    kind: ClassVar[str] = "inner_product"
    src: MemoryDesc
    weights: MemoryDesc
    bias: MemoryDesc | None
    dst: MemoryDesc
    prop: str = "forward_inference"

    def __post_init__(self) -> None:
        one_of("prop", self.prop, (*FORWARD, "backward_data", "backward_weights"))
        require(self.bias is None or self.prop != "backward_data", "bias", "the gradient of src needs none")
        require(self.src.ndims >= 2, "src", "expect (N, IC, ...)")
        require(
            self.weights.ndims == self.src.ndims and self.weights.dims[1:] == self.src.dims[1:],
            "weights",
            f"expect (OC, {', '.join(map(str, self.src.dims[1:]))}), got {self.weights.dims}",
        )
        outputs = self.weights.dims[0]
        require(self.dst.dims == (self.src.dims[0], outputs), "dst", f"expect {(self.src.dims[0], outputs)}")
        require(self.bias is None or self.bias.dims == (outputs,), "bias", f"expect ({outputs},)")

    def memories(self) -> dict[int, MemoryDesc]:
        return weighted(self.prop, self.src, self.weights, self.bias, self.dst)
