"""ResNet-50, one picture at a time: poolrt with one worker of one thread beside ONNX Runtime with one thread."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import onnxruntime
from measure import alternate, arguments, record, seconds

import poolrt
from poolrt import models


def main(rounds: int = 15, repeat: int = 5) -> None:
    """Print both medians and poolrt's share of ONNX Runtime's speed."""
    with tempfile.TemporaryDirectory() as folder:
        path = models.write("resnet50", Path(folder) / "resnet50.onnx")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        (port,) = session.get_inputs()
        picture = np.random.default_rng(0).standard_normal(port.shape).astype(np.float32)
        expected: Any = session.run(None, {port.name: picture})[0]
        with poolrt.Pool(workers=1, threads=1) as pool:
            model = pool.load(poolrt.load_onnx(path))
            (got,) = model.run(**{port.name: picture}).values()
            np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-7)
            found = alternate(
                {
                    "onnxruntime": lambda: seconds(lambda: session.run(None, {port.name: picture}), repeat),
                    "poolrt": lambda: seconds(lambda: model.run(**{port.name: picture}), repeat),
                },
                rounds,
            )
    record(
        "ResNet-50, batch 1, one thread",
        [
            f"ONNX Runtime {onnxruntime.__version__}: {found['onnxruntime'] * 1e3:.1f} ms a picture",
            f"poolrt: {found['poolrt'] * 1e3:.1f} ms a picture",
            f"speed to that of ONNX Runtime, ratio {found['onnxruntime'] / found['poolrt']:.2f} (goal: at least 0.70)",
        ],
    )


if __name__ == "__main__":
    arguments(__doc__)
    main()
