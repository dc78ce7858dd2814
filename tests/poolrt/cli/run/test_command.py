"""`poolrt run` as a program: a small model on a real pool, and every kind of wrong usage."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from poolrt import load_onnx
from poolrt.cachestore import CacheStore
from tests.poolrt.onnx.staged_models import KINDS
from tests.poolrt.pool.created import create

DIMS = (1, 16, 8, 8)
#: A variable by which everything that a run starts is found again.
MARK = "TEST_OF_POOLRT_RUN"


def _model(path: Path, dims: tuple[int | str, ...] = DIMS, operator: str = "Relu") -> Path:
    """Write y = operator(x) + x."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in ("x", "y"))
    nodes = [helper.make_node(operator, ["x"], ["h"], name="first"), helper.make_node("Add", ["h", "x"], ["y"])]
    graph = helper.make_graph(nodes, "small", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def _answer(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.maximum(x, 0) + x


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the model, its random input of seed 5 and the answer; the home folder of all runs is in it.

    The embedded server is up before the first run, so that all that a run starts is its own.
    """
    place = tmp_path_factory.mktemp("run")
    _model(place / "m.onnx")
    x = np.random.default_rng(5).standard_normal(DIMS).astype("f4")
    np.save(place / "x.npy", x)
    np.savez(place / "y.npz", y=_answer(x))
    with CacheStore.connect(home=str(place / "home")) as store:
        store.ping()
        yield place
        store.down()


def _environment(place: Path, **more: str) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("POOLRT_")}
    return env | {
        "POOLRT_HOME": str(place / "home"),
        "POOLRT_WORKERS": "1",
        "POOLRT_THREADS": "1",
        "POOLRT_ARENA_BYTES": "64MiB",
        MARK: str(place),
        **more,
    }


def _run(place: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "poolrt", "run", *words]
    env = _environment(place, **more)
    return subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, timeout=100, check=False)


def _json(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout)
    assert isinstance(loaded, dict)
    return loaded


def test_a_model_gives_the_right_result_and_a_second_process_creates_nothing(place: Path) -> None:
    words = ("m.onnx", "--input", "x=x.npy", "--expect", "y.npz", "--save", "out.npz", "--json")
    first = _json(_run(place, *words))
    second = _json(_run(place, *words))
    assert first["primitives"]["created"] == first["primitives"]["total"] > 0
    assert second["primitives"]["created"] == 0
    assert second["primitives"]["total"] == first["primitives"]["total"]
    assert first["outputs"] == {"y": {"shape": list(DIMS), "dtype": "float32"}}
    assert first["max_abs_error"] == second["max_abs_error"] == 0
    assert not any(worker["numba_imported"] for worker in second["workers"])
    assert all(worker["rss_bytes"] > 0 for worker in second["workers"])
    assert {"model", "nodes", "load_s", "first_run_s", "median_run_s"} <= set(first)
    with np.load(place / "out.npz") as saved, np.load(place / "y.npz") as expected:
        np.testing.assert_array_equal(saved["y"], expected["y"])


def test_random_inputs_and_repeated_runs_on_two_workers_are_checked_one_by_one(place: Path) -> None:
    done = _run(
        place,
        "m.onnx",
        "--random-inputs",
        "5",
        "--expect",
        "y.npz",
        "--repeat",
        "20",
        "--top",
        "2",
        "--workers",
        "2",
        "--json",
    )
    answer = _json(done)
    assert len(answer["workers"]) == 2
    assert len(answer["top"]["y"]) == 2
    assert answer["top"]["y"][0][1] >= answer["top"]["y"][1][1]


def test_people_get_a_summary(place: Path) -> None:
    done = _run(place, "m.onnx", "--random-inputs", "5", "--repeat", "2", "--top", "1")
    assert done.returncode == 0, done.stderr
    for word in ("primitives", "load", "first run", "median run", "output      y float32[1, 16, 8, 8]"):
        assert word in done.stdout


def test_a_plan_is_shown_in_text_and_json(place: Path) -> None:
    done = _run(place, "m.onnx", "--random-inputs", "5", "--plan", "--json")
    plan = _json(done)["plan"]
    assert (plan["reorders"], plan["crossings"]) == (0, 0)
    assert [step["operation"] for step in plan["steps"]] == ["eltwise", "binary"]
    assert plan["steps"][0]["operands"] == ["src f32:abcd:1x16x8x8 (input 0)"]
    assert [step["nodes"] for step in plan["steps"]] == [
        [{"name": "first", "operator": "Relu"}],
        [{"name": "y", "operator": "Add"}],
    ]
    assert "plan        2 steps, 0 reorders, 0 across engines" in done.stderr
    assert "native:eltwise" in done.stderr


@pytest.mark.slow
def test_a_profile_has_each_step_and_the_slowest_is_first(place: Path) -> None:
    done = _run(place, "m.onnx", "--random-inputs", "5", "--profile", "--json")
    profile = _json(done)["profile"]
    assert (profile["threads"], profile["runs"]) == (1, 10)
    seconds = [step["seconds"] for step in profile["steps"]]
    assert seconds == sorted(seconds, reverse=True)
    assert {step["nodes"][0]["operator"] for step in profile["steps"]} == {"Relu", "Add"}
    # A processor reaches more than a GFLOP/s and a GB/s, and less than 100 TFLOP/s and 100 TB/s
    assert all(1e9 < rate < 1e14 for rate in profile["peak"].values())
    assert "profile     10 runs in this process on 1 thread, steps take" in done.stderr


def test_a_model_that_leaves_its_batch_open_takes_it_from_the_command_line(place: Path) -> None:
    path = _model(place / "open.onnx", ("N", *DIMS[1:]))
    create(place / "home", *(load_onnx(path, shapes={"x": (size, *DIMS[1:])}) for size in (2, 3)))
    answer = _json(_run(place, "open.onnx", "--random-inputs", "5", "--batch", "3", "--json"))
    assert answer["outputs"]["y"]["shape"] == [3, *DIMS[1:]]
    answer = _json(_run(place, "open.onnx", "--random-inputs", "5", "--shape", "x=2,16,8,8", "--json"))
    assert answer["outputs"]["y"]["shape"] == [2, *DIMS[1:]]


def test_a_result_that_differs_exits_with_status_1_and_names_the_output(place: Path) -> None:
    np.savez(place / "wrong.npz", y=np.zeros(DIMS, "f4"))
    done = _run(place, "m.onnx", "--input", "x=x.npy", "--expect", "wrong.npz", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["message"].startswith("output y differs from the expected one")


@pytest.mark.parametrize(
    ("words", "environ", "status", "reason"),
    [
        (["none.onnx", "--random-inputs", "0"], {}, 2, "none.onnx: no such file"),
        # `tests/acceptance/test_bad_input.py` has more of them.
        pytest.param(["broken.onnx", "--random-inputs", "0"], {}, 1, "broken.onnx", marks=pytest.mark.slow),
        pytest.param(["strange.onnx", "--random-inputs", "0"], {}, 1, "node 'first' (Einsum", marks=pytest.mark.slow),
        pytest.param(["m.onnx"], {}, 2, "no value for x float32[1, 16, 8, 8]", marks=pytest.mark.slow),
        *(
            # The errors of inputs are those of `read_inputs`, which has tests of its own.
            pytest.param(["m.onnx", "--input", value], {}, 2, reason, marks=pytest.mark.slow)
            for value, reason in (
                ("z=x.npy", "--input z: the model has no such input"),
                ("x=small.npy", "the model expects [1, 16, 8, 8]"),
                ("x=double.npy", "holds float64, the model expects float32"),
            )
        ),
        pytest.param(
            ["m.onnx", "--random-inputs", "0", "--expect", "none.npz"],
            {},
            2,
            "none.npz: No such file",
            marks=pytest.mark.slow,
        ),
        (["m.onnx", "--random-inputs", "0", "--save", "none/out.npz"], {}, 2, "there is no folder none"),
        pytest.param(
            ["m.onnx", "--random-inputs", "0"],
            {"POOLRT_REDIS_URL": "redis://127.0.0.1:1"},
            1,
            "is not available",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["m.onnx", "--random-inputs", "0"], {"POOLRT_ENGINE": "opencl:99"}, 1, "opencl:99", marks=pytest.mark.slow
        ),
        pytest.param(
            ["huge.onnx", "--random-inputs", "0"], {"POOLRT_ARENA_BYTES": "1MiB"}, 1, "arena", marks=pytest.mark.slow
        ),
    ],
)
def test_an_impossible_run_is_refused_in_one_line_and_leaves_no_process(
    place: Path, words: list[str], environ: dict[str, str], status: int, reason: str
) -> None:
    (place / "broken.onnx").write_bytes((place / "m.onnx").read_bytes()[:40] + b"\xff" * 40)
    _model(place / "strange.onnx", operator="Einsum")
    huge = _model(place / "huge.onnx", dims=(1, 16, 256, 256))
    if "huge.onnx" in words:
        create(place / "home", load_onnx(huge))
    np.save(place / "small.npy", np.zeros((1, 2), "f4"))
    np.save(place / "double.npy", np.zeros(DIMS))
    done = _run(place, *words, **environ)
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("poolrt: ")
    assert done.stderr.count("\n") == 1
    assert reason in done.stderr
    assert _ours(place) == []


def test_an_interrupted_run_exits_with_status_130_and_leaves_no_process(place: Path) -> None:
    # Given a run that is under way
    command = [sys.executable, "-m", "poolrt", "run", "m.onnx", "--random-inputs", "0", "--repeat", "1000000"]
    run = subprocess.Popen(
        command, cwd=place, env=_environment(place), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while len(_ours(place)) < 3 and run.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    # When it is interrupted as from a keyboard
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    # Then it says so, and its processes are gone
    assert run.returncode == 130, err
    assert (out, err) == ("", "poolrt: interrupted\n")
    deadline = time.monotonic() + 10
    while _ours(place) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _ours(place) == []


def test_an_interrupt_inside_generated_code_gives_status_130_too(place: Path, tmp_path: Path) -> None:
    # Given a library that is interrupted while it executes a text, as dataclasses do
    (tmp_path / "onnx.py").write_text('exec("raise KeyboardInterrupt")')
    # When a run imports it
    done = _run(place, "m.onnx", "--random-inputs", "0", PYTHONPATH=str(tmp_path))
    # Then CPython, which notes such an interrupt, does not end the process with the signal
    assert (done.returncode, done.stderr) == (130, "poolrt: interrupted\n")


def _ours(place: Path) -> list[int]:
    """Processes that a run of this module has started, or that were started by such a one."""
    mark = f"{MARK}={place}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_the_stages_of_a_model_without_a_single_plan_are_shown_with_their_steps(place: Path) -> None:
    source, feeds = KINDS["chosen_rows"](np.random.default_rng())
    onnx.save(source, place / "stages.onnx")
    words = (
        "stages.onnx",
        "--random-inputs",
        "0",
        "--shape",
        f"x={','.join(map(str, next(feeds)['x'].shape))}",
        "--plan",
    )
    done = _run(place, *words)
    assert (done.returncode, done.stdout.count("\nstage ")) == (1, 2)
    assert "a run makes its plan, when it knows rows" in done.stdout
    assert "poolrt: " in done.stderr
    found = json.loads(_run(place, *words, "--json").stdout)
    assert found["first_stage"] == ["rows", "turned"]
    assert any(step["nodes"] for step in found["stages"][0]["plan"]["steps"])
