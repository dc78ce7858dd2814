"""`poolrt warm` as a program: models and functions, and what is in the cache afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from poolrt.cachestore import CacheStore
from poolrt.cli import main

KERNELS = """
import pyopencl as cl
import poolrt

def build():
    platform = next(each for each in cl.get_platforms() if "Portable" in each.name)
    context = cl.Context(platform.get_devices()[:1])
    poolrt.opencl.Program(context, "__kernel void f(__global int *x) { *x = 1; }").build()
    print("built")
"""
OTHERS = """
number = 3

def says():
    print("called")

def fails():
    raise ValueError("no such file\\nat all")

async def asynchronous():
    pass
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("warm")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 16, 8, 8)) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "small", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), place / "m.onnx")
    (place / "kernels.py").write_text(KERNELS)
    (place / "others.py").write_text(OTHERS)
    (place / "broken.py").write_text("import absent_package\n")
    yield place
    for home in ("home", "image"):
        CacheStore.connect(home=str(place / home)).down()


def _poolrt(place: Path, *words: str, home: str = "home", **more: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("POOLRT_")}
    env |= {
        "POOLRT_HOME": str(place / home),
        "POOLRT_ARENA_BYTES": "64MiB",
        "POCL_CACHE_DIR": str(place / "pocl"),
        **more,
    }
    code = "import sys; sys.path = [p for p in sys.path if p]; from poolrt.cli import main; main()"  # as the script `poolrt`
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, timeout=100, check=False)


def test_models_and_functions_are_warm_afterwards_and_in_an_image(place: Path, device: str) -> None:
    words = ("warm", "m.onnx", "kernels:build", "--workers", "1", "--threads", "1", "--json")
    first = _poolrt(place, *words)
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout)  # what the function prints is elsewhere
    assert found["models"][0]["primitives"]["created"] == 1
    assert found["modules"][0]["programs"] == {"created": 1}
    # When the cache goes into an image
    assert _poolrt(place, "cache", "export", "bundle").returncode == 0
    (place / "image").mkdir(mode=0o700)
    (place / "image" / "signing.key").write_bytes((place / "home" / "signing.key").read_bytes())
    (place / "image" / "signing.key").chmod(0o600)
    assert _poolrt(place, "cache", "import", "bundle", home="image").returncode == 0
    # Then nothing is created there
    second = _poolrt(place, *words, home="image")
    assert second.returncode == 0, second.stderr
    found = json.loads(second.stdout)
    assert found["models"][0]["primitives"]["created"] == 0
    assert "created" not in found["modules"][0]["programs"]


def test_a_function_of_a_module_in_the_current_folder_is_called(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POOLRT_HOME", str(place / "home"))
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(place))])
    monkeypatch.chdir(place)
    assert main(["warm", "others:says", "others"]) == 0
    said, first, second = capsys.readouterr().out.splitlines()
    assert said == "called"
    assert first.startswith("others:says: ")
    assert second.startswith("others: ")


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        ("absent.onnx", 2, "absent.onnx: no such file"),
        ("kernels.py", 2, "got the file kernels.py: write kernels"),
        ("a b", 2, "expected MODEL.onnx, MODULE or MODULE:FUNCTION, got 'a b'"),
        ("absent", 1, "there is no module absent: go to the folder that has it, or set PYTHONPATH"),
        ("broken", 1, "broken: ModuleNotFoundError: No module named 'absent_package'"),
        ("others:fail", 1, "others:fail: there is no 'fail'; the nearest is 'fails'"),
        ("others:number", 1, "others:number is no function: its type is int"),
        ("others:fails", 1, "others:fails raised ValueError: no such file at all"),
        ("others:asynchronous", 1, "others:asynchronous is asynchronous"),
    ],
)
def test_what_cannot_be_warmed_is_one_line(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    target: str,
    status: int,
    said: str,
) -> None:
    monkeypatch.setenv("POOLRT_HOME", str(place / "home"))
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.chdir(place)
    assert main(["warm", target]) == status
    shown = capsys.readouterr().err
    assert said in shown
    assert len(shown.splitlines()) == 1


@pytest.mark.parametrize(
    ("variable", "said"),
    [("POOLRT_READ_ONLY", "warm keeps nothing in it"), ("POOLRT_REDIS_URL", "correct POOLRT_REDIS_URL")],
)
def test_a_cache_that_keeps_nothing_is_an_error(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str, said: str
) -> None:
    monkeypatch.setenv("POOLRT_HOME", str(place / "other"))
    monkeypatch.setenv(variable, "1" if variable == "POOLRT_READ_ONLY" else "redis://127.0.0.1:1")
    assert main(["warm", "os"]) == 1
    shown = capsys.readouterr().err
    assert said in shown
    assert len(shown.splitlines()) == 1
