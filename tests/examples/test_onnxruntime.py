"""The programs for ONNX Runtime give the same results on poolrt, with one line changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from poolrt.cachestore import CacheStore
from tests.poolrt.graph.onnx.transformers import bert
from tests.poolrt.onnx.models import model

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "onnxruntime"
LIBRARIES = ("onnxruntime", "poolrt.onnx")
#: Asks the service for texts of several numbers and lengths, one after the other, and then for none.
CLIENT = """
import json
from fastapi.testclient import TestClient
from encoder_service import app

client = TestClient(app)
for tokens in json.loads(input()):
    answer = client.post("/embed", json={"tokens": tokens})
    assert answer.status_code == 200, answer.text
    print(json.dumps(answer.json()["vectors"]))
assert client.post("/embed", json={"tokens": [[]]}).status_code == 422
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with each program in a folder for each library; the server of the cache in it is stopped at the end."""
    for library in LIBRARIES:
        (tmp_path / library).mkdir()
        for program in EXAMPLES.glob("*.py"):
            lines = program.read_text("utf-8").splitlines(keepends=True)
            (number,) = (each for each, line in enumerate(lines) if "onnxruntime" in line and "import" in line)
            assert lines[number] == "import onnxruntime as ort\n"
            lines[number] = f"import {library} as ort\n"
            (tmp_path / library / program.name).write_text("".join(lines), "utf-8")
    yield tmp_path
    CacheStore.connect(home=str(tmp_path / "home")).down()


def run(folder: Path, library: str, *words: object, text: str = "", **more: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POOLRT_")}
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder / library, input=text, capture_output=True, text=True, timeout=110, check=False,
        env={**environment, "POOLRT_HOME": str(folder / "home"), **more},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_an_image_classifier(folder: Path) -> None:
    random, kind = np.random.default_rng(3), TensorProto.FLOAT
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["l"]),
        helper.make_node("Softmax", ["l"], ["scores"], axis=-1),
    ]
    weights = {
        "w": random.standard_normal((8, 3, 3, 3), np.float32),
        "m": random.standard_normal((8, 10), np.float32),
    }
    made = model(
        nodes, {"image": (kind, ["n", 3, "height", "width"])}, {"scores": (kind, ["n", 10])}, weights, opset=17
    )
    onnx.save(made, folder / "classifier.onnx")
    images = []
    for number, size in enumerate(((17, 23), (32, 32), (17, 23))):
        images.append(folder / f"{number}.npy")
        np.save(images[-1], random.integers(0, 256, (*size, 3), np.uint8))
    theirs, mine = (run(folder, each, "classify.py", folder / "classifier.onnx", *images) for each in LIBRARIES)
    assert len(mine.splitlines()) == len(images)
    for found, expected in zip(map(json.loads, mine.splitlines()), map(json.loads, theirs.splitlines()), strict=True):
        assert list(found) == list(expected)
        assert list(found.values()) == pytest.approx(list(expected.values()), abs=2e-4)


@pytest.mark.slow
def test_a_text_encoder_behind_http(folder: Path) -> None:
    onnx.save(bert("sequence"), folder / "encoder.onnx")
    random = np.random.default_rng(4)
    requests = [
        [random.integers(1, 50, length).tolist() for length in lengths]
        for lengths in ((5,), (3, 9, 4), (7, 7), (3, 9, 2))
    ]
    client = folder / "client.py"
    client.write_text(CLIENT, "utf-8")
    theirs, mine = (
        run(folder, each, client, text=json.dumps(requests), ENCODER=str(folder / "encoder.onnx"), PYTHONPATH=".")
        for each in LIBRARIES
    )
    assert len(mine.splitlines()) == len(requests)
    for found, expected in zip(map(json.loads, mine.splitlines()), map(json.loads, theirs.splitlines()), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_scorer_of_batches_with_bound_memory(folder: Path) -> None:
    random, kind = np.random.default_rng(5), TensorProto.FLOAT
    nodes = [
        helper.make_node("Gemm", ["rows", "w", "b"], ["h"]),
        helper.make_node("Tanh", ["h"], ["t"]),
        helper.make_node("MatMul", ["t", "v"], ["scores"]),
    ]
    weights = {
        "w": random.standard_normal((12, 16), np.float32),
        "b": random.standard_normal(16, np.float32),
        "v": random.standard_normal((16, 2), np.float32),
    }
    onnx.save(model(nodes, {"rows": (kind, ["n", 12])}, {"scores": (kind, ["n", 2])}, weights), folder / "scorer.onnx")
    rows = random.standard_normal((3 * 64 + 10, 12), np.float32)
    np.save(folder / "rows.npy", rows)
    for library in LIBRARIES:
        run(folder, library, "score_batches.py", folder / "scorer.onnx", folder / "rows.npy", f"{folder}/{library}.npy")
    found = np.load(folder / "poolrt.onnx.npy")
    np.testing.assert_allclose(found, np.load(folder / "onnxruntime.npy"), rtol=1e-4, atol=1e-5)
    wide = {name: each.astype(np.float64) for name, each in weights.items()}
    np.testing.assert_allclose(found, np.tanh(rows @ wide["w"] + wide["b"]) @ wide["v"], rtol=1e-4, atol=1e-5)
