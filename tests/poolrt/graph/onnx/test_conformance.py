"""Models that PyTorch exported, as ONNX brings them: what can be imported computes their outputs, the rest is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from poolrt import ModelError, load_onnx
from tests.poolrt.graph.interpreter import run_wire

Array = NDArray[Any]
DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


def outcome(model: Any, arrays: Sequence[Array], expected: Sequence[Array]) -> str:
    """Return ``refused`` or ``computed``; fail where a result is wrong."""
    try:
        graph = load_onnx(model)
    except ModelError:
        return "refused"
    constant = {each.name for each in model.graph.initializer}
    names = [each.name for each in model.graph.input if each.name not in constant]
    results = run_wire(*graph.to_wire(), dict(zip(names, arrays, strict=True)))
    for declared, values in zip(model.graph.output, expected, strict=True):
        np.testing.assert_allclose(results[declared.name], values, rtol=1e-3, atol=1e-5)
    return "computed"


def stored(kind: str) -> Iterator[tuple[Any, list[Array], list[Array]]]:
    for path in sorted(DATA.glob(f"{kind}/*/model.onnx")):
        for folder in path.parent.glob("test_data_set_*"):
            yield onnx.load(path), tensors(folder, "input"), tensors(folder, "output")


def tensors(folder: Path, what: str) -> list[Array]:
    files = sorted(folder.glob(f"{what}_*.pb"), key=lambda file: int(file.stem.rpartition("_")[2]))
    return [numpy_helper.to_array(onnx.load_tensor(str(file))) for file in files]


@pytest.mark.parametrize(("kind", "least"), [("pytorch-converted", 65), ("pytorch-operator", 17)])
def test_models_that_pytorch_exported(kind: str, least: int) -> None:
    found = Counter(outcome(*each) for each in stored(kind))
    assert found["computed"] >= least
