"""The gunicorn example: a cold deployment compiles each kernel once, a warmed or imported one compiles nothing."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from poolrt.cachestore import CacheStore
from poolrt.cli.command_line import make_parser
from tests.poolrt.pool.gunicorn_service import ask, listens, needs_gunicorn, service

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gunicorn"


def _ask(path: Path, value: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ask(path, f"value={value}"))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with the model; servers of caches in it are stopped at the end."""
    done = subprocess.run([sys.executable, EXAMPLE / "make_model.py", tmp_path / "model.onnx"], timeout=60, check=False)
    assert done.returncode == 0
    yield tmp_path
    for home in tmp_path.glob("home*"):
        CacheStore.connect(home=str(home)).down()


def _environment(folder: Path, home: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("POOLRT_")}
    return {
        **kept,
        "POOLRT_HOME": str(folder / home),
        "SERVICE_MODEL": str(folder / "model.onnx"),
        "POOLRT_ARENA_BYTES": "64MiB",
    }


def _poolrt(folder: Path, home: str, *words: str, **more: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "poolrt", *words],
        cwd=EXAMPLE, env=_environment(folder, home) | more, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def _service(folder: Path, home: str) -> Iterator[Path]:
    """Run the example during the block, from the moment at which its four workers answer."""
    path = folder / f"http-{home}"
    env = _environment(folder, home) | {"SERVICE_BIND": f"unix:{path}"}
    seen: set[int] = set()

    def ready() -> bool:
        if listens(path):
            with ThreadPoolExecutor(8) as threads:
                seen.update(found["worker"] for found in threads.map(lambda _: _ask(path, 1), range(16)))
        return len(seen) == 4

    with service(path, "--config", "gunicorn.conf.py", folder=EXAMPLE, environment=env, ready=ready):
        yield path


def _expected(folder: Path, value: float) -> float:
    """Return what the service computes, in float64."""
    model = onnx.load(str(folder / "model.onnx"))
    first, second = (onnx.numpy_helper.to_array(each).astype("f8") for each in model.graph.initializer)
    x = np.full((1, first.shape[0]), value)
    products = np.maximum(x / np.linalg.norm(x) @ first, 0) @ second
    powers = np.exp(products - products.max())
    return float((powers / powers.sum() @ np.arange(second.shape[1]))[0])


def _answers(folder: Path, path: Path) -> Counter[int]:
    """Ask 200 times; return how much each worker has compiled itself."""
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda number: (number % 3 + 1, _ask(path, number % 3 + 1)), range(200)))
    expected = {value: _expected(folder, value) for value in (1, 2, 3)}
    for value, found in answers:
        assert found["score"] == pytest.approx(expected[value], rel=1e-4)
    return Counter({found["worker"]: found["compiled"] for _, found in answers})


def _creations(folder: Path, home: str) -> Counter[str]:
    """Return the creations of each kind; none was created twice."""
    entries = json.loads(_poolrt(folder, home, "cache", "list", "--json"))["entries"]
    assert {entry["creations"] for entry in entries} == {1}
    return Counter("primitive" if entry["kind"] not in ("kernel", "numba") else entry["kind"] for entry in entries)


@needs_gunicorn
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_cold_deployment_compiles_each_kernel_once_and_a_prepared_one_nothing(folder: Path) -> None:
    # Given an empty cache, when four workers start, then each kernel is compiled once, and all answers are right
    with _service(folder, "home") as path:
        assert sum(_answers(folder, path).values()) <= 2  # of the workers that have answered
    cold = _creations(folder, "home")
    assert (cold["kernel"], cold["numba"]) == (1, 1)
    assert cold["primitive"] >= 3
    # Given another empty cache that was warmed before, then the workers compile nothing
    words = ("warm", "service:prepare", str(folder / "model.onnx"), "--workers", "1", "--threads", "1")
    _poolrt(folder, "home-warm", *words)
    warmed = _creations(folder, "home-warm")
    with _service(folder, "home-warm") as path:
        assert sum(_answers(folder, path).values()) == 0
    assert _creations(folder, "home-warm") == warmed
    assert (warmed["kernel"], warmed["numba"]) == (1, 1)
    # Given an image with that cache, made as the Dockerfile says, then they compile nothing either
    _poolrt(folder, "home-warm", "cache", "export", str(folder / "kernels.bundle"))
    key = {"POOLRT_KEY_FILE": str(folder / "home-warm" / "signing.key")}
    command = [str(folder / "kernels.bundle") if word == "/tmp/kernels.bundle" else word for word in _import_command()]
    _poolrt(folder, "home-image", *command[1:], **key)
    (folder / "home-image" / "signing.key").write_bytes((folder / "home-warm" / "signing.key").read_bytes())
    (folder / "home-image" / "signing.key").chmod(0o600)
    with _service(folder, "home-image") as path:
        assert sum(_answers(folder, path).values()) == 0
    assert json.loads(_poolrt(folder, "home-image", "cache", "stats", "--json"))["creations"] == 0


def _import_command() -> list[str]:
    """Return the command of the Dockerfile's step that imports."""
    text = re.sub(r"\\\n", " ", (EXAMPLE / "Dockerfile").read_text(encoding="utf-8"))
    (step,) = re.findall(r"^RUN --mount.*$", text, re.MULTILINE)
    return [word for word in shlex.split(step)[1:] if not word.startswith("--mount=")]


def test_the_example_s_dockerfile_copies_what_the_example_has_and_imports_as_poolrt_does() -> None:
    command = _import_command()
    assert command[0] == "poolrt"
    options = make_parser(command[1:]).parse_args(command[1:])
    assert (options.command, options.action, options.node_only) == ("cache", "import", True)
    text = (EXAMPLE / "Dockerfile").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE)
    made = {"model.onnx", "kernels.bundle"}
    assert {word for line in copied for word in line.split()} - made == {"service.py", "gunicorn.conf.py"}
    for line in re.findall(r"^# +(?:POOLRT_KEY_FILE=\S+ )(poolrt .*)$", text, re.MULTILINE):
        words = shlex.split(line)[1:]
        assert make_parser(words).parse_args(words).command == words[0]
