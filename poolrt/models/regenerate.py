"""Compute the expected outputs again with ONNX Runtime: ``python -m poolrt.models.regenerate [NAME...]``.

Needed only after the seed, a weight's distribution or a graph has changed. Prints how well each output discriminates.
"""

from __future__ import annotations

import sys

import numpy as np

from .expected_output import Expected, sample_input, store
from .light import NAMES, build, weights_of
from .seeded import fingerprint


def regenerate(name: str) -> str:
    """Store the expected output of a network and return a line about it."""
    import onnx
    import onnxruntime

    model = build(name, check=False)
    (output,) = model.graph.output
    logits = [node.output[0] for node in model.graph.node if node.op_type == "Gemm"][-1:]
    model.graph.output.extend(onnx.helper.make_tensor_value_info(each, onnx.TensorProto.FLOAT, None) for each in logits)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (declared,) = session.get_inputs()
    values, *extra = session.run(None, {declared.name: sample_input()})
    store(name, Expected(declared.name, output.name, values, fingerprint(weights_of(name).items())))
    deviation = f"{float(extra[0].std()):.9g}" if extra else "none"
    return (
        f"{name}: min {values.min():.3g} max {values.max():.3g} distinct {len(np.unique(values))} "
        f"top {values.argmax()} standard deviation of the logits {deviation}"
    )


if __name__ == "__main__":
    for each in sys.argv[1:] or NAMES:
        print(regenerate(each), flush=True)
