"""Large weights of sessions are in files that all processes of a node share; results are those of sessions without them."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from poolrt.graph.mapped_file import MappedFile
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.pool.processes import wait_until

from .models import Array, model, session

DEEP, WIDE = 512, 1040


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POOLRT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def drawn(seed: int | None = None) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return ``y = relu(x a) b + table[ids]``: two matrices that plans rearrange, one that they read as it is."""
    random = np.random.default_rng(seed)
    weights = {
        "table": random.standard_normal((700, DEEP), np.float32),
        "a": random.standard_normal((DEEP, WIDE), np.float32),
        "b": random.standard_normal((WIDE, DEEP), np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"]),
        helper.make_node("Relu", ["p"], ["q"]),
        helper.make_node("MatMul", ["q", "b"], ["r"]),
        helper.make_node("Gather", ["table", "ids"], ["s"]),
        helper.make_node("Add", ["r", "s"], ["y"]),
    ]
    ports = {"x": (TensorProto.FLOAT, ["n", DEEP]), "ids": (TensorProto.INT64, ["n"])}
    return model(nodes, ports, {"y": (TensorProto.FLOAT, ["n", DEEP])}, weights), weights


def saved(path: Path, seed: int | None = None) -> tuple[Path, dict[str, Array]]:
    proto, weights = drawn(seed)
    onnx.save(proto, path, save_as_external_data=True, location=f"{path.stem}.weights", size_threshold=1024)
    return path, weights


def run(source: Any, cache: PrimitiveProvider, rows: int = 3) -> tuple[Array, Counter[str]]:
    made = session(source, cache)
    random = np.random.default_rng(rows)
    feed = {"x": random.standard_normal((rows, DEEP), np.float32), "ids": random.integers(0, 700, rows)}
    (found,) = made.run(None, feed)
    rival = onnxruntime.InferenceSession(source if isinstance(source, bytes) else str(source))
    np.testing.assert_allclose(found, rival.run(None, feed)[0], rtol=1e-3, atol=1e-3)
    files = made._plans._files  # type: ignore[attr-defined]
    return found, Counter() if files is None else files.counts


def age(folder: Path) -> None:
    """Wait until changes of the files in a folder are old enough to be told from later ones."""
    for path in folder.glob("*.weights"):
        with path.open("rb") as file:
            wait_until(MappedFile(file, path).is_settled, f"{path} is settled")


def test_the_second_session_rearranges_no_weights(
    tmp_path: Path, cache: PrimitiveProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = saved(tmp_path / "m.onnx")
    age(tmp_path)
    first, counts = run(path, cache)
    assert (counts["written"], counts["found"]) == (2, 0)  # the table is used in its own file
    second, counts = run(path, cache)
    assert (counts["written"], counts["found"]) == (0, 2)
    monkeypatch.setenv("POOLRT_CONSTANT_FILES_BYTES", "0")
    own, counts = run(path, cache)
    assert not counts
    assert first.tobytes() == second.tobytes() == own.tobytes()
    assert run(path, cache, 5)[0].shape == (5, DEEP)


def test_weights_in_bytes_are_shared_by_their_content(cache: PrimitiveProvider) -> None:
    content = drawn()[0].SerializeToString()
    first, counts = run(content, cache)
    assert counts["written"] == 3
    second, counts = run(content + b"", cache)
    assert (counts["written"], counts["found"]) == (0, 3)
    assert first.tobytes() == second.tobytes()


def test_a_file_that_was_overwritten_or_replaced_has_other_weights(tmp_path: Path, cache: PrimitiveProvider) -> None:
    path, weights = saved(tmp_path / "m.onnx", 1)
    age(tmp_path)
    first, _ = run(path, cache)
    held = os.stat(tmp_path / "m.weights")
    (tmp_path / "m.weights").unlink()
    saved(path, 2)
    os.utime(tmp_path / "m.weights", ns=(held.st_atime_ns, held.st_mtime_ns))
    second, counts = run(path, cache)
    assert counts["found"] == 0
    with (tmp_path / "m.weights").open("r+b") as file:
        file.seek(700 * DEEP * 4)
        file.write(weights["a"].tobytes()[:100])
    os.utime(tmp_path / "m.weights", ns=(held.st_atime_ns, held.st_mtime_ns))
    third, counts = run(path, cache)
    assert len({first.tobytes(), second.tobytes(), third.tobytes()}) == 3


def test_damaged_files_cost_no_result(tmp_path: Path, home: Path, cache: PrimitiveProvider) -> None:
    path, _ = saved(tmp_path / "m.onnx")
    age(tmp_path)
    first, _ = run(path, cache)
    for number, file in enumerate((home / "default" / "constants").glob("*/*")):
        whole = file.read_bytes()
        file.unlink()
        file.write_bytes(whole[: -1 - number * 5000])
    second, counts = run(path, cache)
    assert (counts["refused"], counts["written"]) == (2, 2)
    assert first.tobytes() == second.tobytes()
