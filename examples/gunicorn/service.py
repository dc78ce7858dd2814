"""A WSGI service whose processes share every kernel: a kernel, a Numba function and an ONNX model.

    python make_model.py model.onnx
    gunicorn --config gunicorn.conf.py service:application

`GET /?value=2` returns JSON: the score of an image whose pixels are all 2, the worker, and what that worker has compiled.
docs/services.md shows how to compile everything before the deployment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs

import numpy as np

import poolrt

#: Inputs of the model.
SIZE = 64


@poolrt.kernel("void(f4[:, ::1], f4[:, ::1])")
def normalize(x: Any, y: Any) -> None:
    """Bring each row to a length of 1."""
    for i in range(x.shape[0]):
        total = 0.0
        for j in range(x.shape[1]):
            total += x[i, j] * x[i, j]
        factor = 1.0 / max(total, 1e-12) ** 0.5
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] * factor


@poolrt.njit
def weigh(probabilities: Any) -> Any:
    """Return the mean index of a class."""
    score = 0.0
    for index in range(probabilities.shape[1]):
        score += index * probabilities[0, index]
    return score


@lru_cache(maxsize=1)
def model() -> poolrt.Executor:
    """Return the model, which this process runs on its own thread."""
    return poolrt.Executor(poolrt.load_onnx(os.environ.get("SERVICE_MODEL", "model.onnx")))


def compute(value: float) -> float:
    """Return the score of an image whose pixels are all ``value``."""
    image = np.full((1, SIZE), value, np.float32)
    row = np.empty_like(image)
    normalize(image, row)
    return float(weigh(model().run(x=row)["y"]))


def prepare() -> None:
    """Find everything that a request needs, or create it: gunicorn.conf.py and `poolrt warm service:prepare` call it."""
    compute(1.0)


def compiled() -> int:
    """Return how many kernels and functions this process has compiled for all."""
    return poolrt.kernels.stats()["created"] + poolrt.numba.stats()["created"]


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer one request."""
    value = float(parse_qs(environ.get("QUERY_STRING", "")).get("value", ["1"])[0])
    found = {"score": compute(value), "worker": os.getpid(), "compiled": compiled()}
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(found).encode()]
