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
from poolrt.numba.process_store import process_store

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
#: A module of Numba functions, with and without signatures, kernels and graphs.
SERVICE = """
import numba
import poolrt

@poolrt.kernel("void(f4[::1])")
def twice(x):
    x[0] *= 2

@poolrt.njit("f8(f8)")
def known(x):
    return x + 1

@poolrt.njit
def opened(x):
    return x + 2

@numba.njit
def plain(x):
    return x

graph = poolrt.Graph("own")
graph.output("y", graph.eltwise(graph.input("x", (2, 8)), "relu"))

def graphs():
    return {"a": [graph]}, twice

def warm_up():
    opened(1.0)

def takes(x, y=1):
    pass
"""
#: A script that prints what it found in the store.
SCRIPT = """
import json
import numpy as np
import poolrt

@poolrt.kernel("void(f8[::1])")
def kernel(x):
    x[0] += 1

@poolrt.njit
def shared(x):
    return x * 2

def warm_up():
    x = np.ones(1)
    kernel(x)
    assert (shared(1.0), x[0]) == (2.0, 2.0)

if __name__ == "__main__":
    warm_up()
    print(json.dumps([poolrt.numba.stats(), poolrt.kernels.stats()]))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("warm")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 16, 8, 8)) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "small", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), place / "m.onnx")
    (place / "kernels.py").write_text(KERNELS)
    (place / "others.py").write_text(OTHERS)
    (place / "service.py").write_text(SERVICE)
    (place / "script.py").write_text(SCRIPT)
    (place / "package").mkdir()
    (place / "package" / "__init__.py").write_text("from . import inner\n")
    (place / "package" / "inner.py").write_text(SERVICE.partition("@poolrt.njit")[0])
    (place / "unfit.py").write_text('import poolrt\n@poolrt.kernel("void(f4)")\ndef f(x):\n    x.nothing()\n')
    (place / "untyped.py").write_text('import poolrt\n@poolrt.njit("f8(f8)")\ndef f(x):\n    return x.nothing\n')
    (place / "broken.py").write_text("import absent_package\n")
    yield place
    for home in ("home", "image", "script"):
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_functions_kernels_and_graphs_of_modules_are_created_and_counted(place: Path) -> None:
    # Given a module with everything, when it is warmed, then all that has a signature or shape is created
    words = (
        "warm",
        "service",
        "package",
        "service:warm_up",
        "service:graphs",
        "--workers",
        "1",
        "--threads",
        "1",
        "--json",
    )
    done = _poolrt(place, *words)
    assert done.returncode == 0, done.stderr
    module, package, function, graphs = json.loads(done.stdout)["modules"]
    assert (module["functions"], module["kernels"], module["open"]) == ({"created": 1}, {"created": 1}, ["opened"])
    assert [(graph["graph"], graph["primitives"]["total"]) for graph in module["graphs"]] == [("own", 1)]
    # Modules of a package that its import loads
    assert package["kernels"] == {"created": 1}
    # What a function compiles, and what it returns
    assert function["functions"] == {"created": 1}
    assert (graphs["kernels"], [graph["primitives"]["created"] for graph in graphs["graphs"]]) == ({"hits": 1}, [0])
    assert (
        "service: without a signature, so only a call compiles: opened; name a function that calls them" in done.stderr
    )
    # When it is warmed again, then nothing is created
    done = _poolrt(place, *words)
    for found in json.loads(done.stdout)["modules"]:
        assert not {"created", "failed"} & (found["functions"].keys() | found["kernels"].keys())
        assert all(graph["primitives"]["created"] == 0 for graph in found["graphs"])


def test_one_kernel_or_function_may_be_named(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POOLRT_HOME", str(place / "home"))
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(place))])
    monkeypatch.chdir(place)
    process_store.cache_clear()
    try:
        assert main(["warm", "service:twice", "service:known", "--json"]) == 0
        kernel, function = json.loads(capsys.readouterr().out)["modules"]
        assert sum(kernel["kernels"].values()) == 1
        assert (function["kernels"], function["graphs"]) == ({}, [])
        for target, said in (
            ("service:opened", "has no signature, so only a call compiles it: name a function that calls it"),
            ("service:plain", "is a function of numba.njit, which the cache does not have: write poolrt.njit"),
            ("service:takes", "takes the arguments (x, y=1): name a function without any that calls it"),
            (
                "unfit",
                f"unfit: kernel f ({place}/unfit.py:2): Numba rejects it: Unknown attribute 'nothing' of type float",
            ),
            ("untyped", "its import raised TypingError: Unknown attribute 'nothing' of type float64 (File "),
        ):
            assert main(["warm", target]) == 1
            shown = capsys.readouterr().err
            assert said in shown
            assert len(shown.splitlines()) == 1
    finally:
        process_store().close()
        process_store.cache_clear()


@pytest.mark.slow
def test_functions_of_a_script_are_warm_when_python_runs_it(place: Path) -> None:
    # Given a script whose function was warmed as the main module's, without its part for programs
    done = _poolrt(place, "warm", "--main", "script:warm_up", "--json", home="script")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["modules"]
    assert (found["functions"], found["kernels"]) == ({"created": 1}, {"created": 1})
    # When Python runs it, then it compiles nothing
    env = {**os.environ, "POOLRT_HOME": str(place / "script")}
    ran = subprocess.run(
        [sys.executable, "script.py"], cwd=place, env=env, capture_output=True, text=True, timeout=100, check=False
    )
    assert ran.returncode == 0, ran.stderr
    functions, kernels = json.loads(ran.stdout)
    assert (functions["hits"], functions["created"], kernels["hits"], kernels["created"]) == (1, 0, 1, 0)


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        ("./package/inner.py:twice", 2, "got the file ./package/inner.py: write package.inner:twice"),
        ("/srv/kernels.py", 2, "go to the folder that has it, and write kernels"),
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


def test_an_error_of_a_model_names_it_once(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POOLRT_HOME", str(place / "untouched"))
    monkeypatch.chdir(place)
    node = helper.make_node("Relu", ["x"], ["y"])
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "m"]) for name in "xy"]
    onnx.save(helper.make_model(helper.make_graph([node], "g", ports[:1], ports[1:])), "open.onnx")
    assert main(["warm", "m.onnx", "open.onnx"]) == 1
    assert capsys.readouterr().err.startswith("poolrt: open.onnx: input 'x': dimension 1 (m) is open")
    # And no server has been started
    assert not (place / "untouched").exists()


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
