"""Bad input: one line that says what failed and what to do, the right exit status, no process left."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from poolrt.cli import main

from .surroundings import Surroundings

DIMS = (1, 16, 8, 8)


def save_model(path: Path, *nodes: Any, dims: tuple[int, ...] = DIMS) -> None:
    """Write a model from x to y."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, size) for name, size in (("x", dims), ("y", None)))
    scale = helper.make_tensor("s", TensorProto.FLOAT, [dims[1]], [1.0] * dims[1])
    graph = helper.make_graph(nodes, "small", [x], [y], [scale])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surroundings]:
    """Surroundings with a model, its input, its output, and one of everything that can be wrong."""
    place = Surroundings(tmp_path_factory.mktemp("bad"), POOLRT_WORKERS="1")
    here = place.folder
    save_model(here / "m.onnx", helper.make_node("Relu", ["x"], ["y"], name="first"))
    (here / "broken.onnx").write_bytes((here / "m.onnx").read_bytes()[:40] + b"\xff" * 40)
    (here / "empty.onnx").touch()
    (here / "text.onnx").write_text("no model")
    (here / "folder.onnx").mkdir()
    save_model(here / "operator.onnx", helper.make_node("StringNormalizer", ["x"], ["y"], name="strange"))
    cast = helper.make_node("Cast", ["x"], ["y"], name="cast", to=TensorProto.STRING)
    save_model(here / "attribute.onnx", cast)
    save_model(here / "huge.onnx", helper.make_node("Relu", ["x"], ["y"], name="first"), dims=(1, 64, 256, 256))
    x = np.random.default_rng(0).standard_normal(DIMS).astype("f4")
    np.save(here / "x.npy", x)
    np.savez(here / "y.npz", y=np.maximum(x, 0))
    np.save(here / "small.npy", x[:, :, :2])
    np.save(here / "double.npy", x.astype("f8"))
    np.savez(here / "wrong.npz", y=np.maximum(x, 0) + np.float32(0.25))
    (here / "broken.npz").write_bytes((here / "y.npz").read_bytes()[:100])
    (here / "broken.pb").write_bytes(b"\xff" * 40)
    (here / "syntax.toml").write_text("[pool\n")
    (here / "unknown.toml").write_text("[pool]\nworkerz = 2\n")
    (here / "open.key").write_bytes(bytes(32))
    (here / "open.key").chmod(0o644)
    (here / "open").mkdir()
    (here / "open").chmod(0o777)
    found = place.json("run", "m.onnx", "--input", "x=x.npy", "--expect", "y.npz")
    assert found["max_abs_error"] == 0
    yield place
    place.close()


RUN = ("run", "m.onnx", "--input", "x=x.npy")
RANDOM = ("--random-inputs", "0")
UNREACHABLE = "start that server, correct POOLRT_REDIS_URL, or unset it to use the embedded server"

#: What is asked, in which environment, the exit status, and what the one line says.
CASES: list[tuple[tuple[str, ...], dict[str, str], int, tuple[str, ...]]] = [
    (("run", "none.onnx", *RANDOM), {}, 2, ("none.onnx: no such file",)),
    (("run", "folder.onnx", *RANDOM), {}, 2, ("folder.onnx: not a file",)),
    (("run", "broken.onnx", *RANDOM), {}, 1, ("broken.onnx: not an ONNX model",)),
    (("run", "empty.onnx", *RANDOM), {}, 1, ("empty.onnx: not an ONNX model",)),
    (("run", "text.onnx", *RANDOM), {}, 1, ("text.onnx: not an ONNX model",)),
    (
        ("run", "operator.onnx", *RANDOM),
        {},
        1,
        ("node 'strange' (StringNormalizer, opset 17): poolrt has no such operator",),
    ),
    (("run", "attribute.onnx", *RANDOM), {}, 1, ("node 'cast' (Cast, opset 17): ", "data type 8")),
    (("run", "m.onnx"), {}, 2, ("no value for x float32[1, 16, 8, 8]: give --input NAME=FILE or --random-inputs",)),
    (("run", "m.onnx", "--input", "z=x.npy"), {}, 2, ("--input z: the model has no such input; it has x float32",)),
    (("run", "m.onnx", "--input", "x"), {}, 2, ("--input x: expected NAME=FILE",)),
    (("run", "m.onnx", "--input", "x=none.npy"), {}, 2, ("none.npy: No such file or directory",)),
    (("run", "m.onnx", "--input", "x=small.npy"), {}, 2, ("has shape [1, 16, 2, 8], the model expects [1, 16, 8, 8]",)),
    (("run", "m.onnx", "--input", "x=double.npy"), {}, 2, ("holds float64, the model expects float32",)),
    ((*RUN, "--expect", "none.npz"), {}, 2, ("none.npz: No such file or directory",)),
    ((*RUN, "--expect", "broken.npz"), {}, 2, ("broken.npz: a damaged archive",)),
    ((*RUN, "--expect", "broken.pb"), {}, 2, ("broken.pb: not an ONNX tensor",)),
    ((*RUN, "--expect", "m.onnx"), {}, 2, ("m.onnx: not a file of arrays",)),
    ((*RUN, "--expect", "wrong.npz"), {}, 1, ("output y differs", "in 1024 of 1024 values, by 0.25 at most")),
    ((*RUN, "--save", "none/out.npz"), {}, 2, ("--save none/out.npz: there is no folder none",)),
    ((*RUN, "--workers", "0"), {}, 2, ("--workers: expected an integer of at least 1, got 0",)),
    ((*RUN, "--workers", "many"), {}, 2, ("--workers: expected an integer of at least 1, got many",)),
    ((*RUN, "--workers", "100000"), {}, 2, ("workers: expected integer from 0 to 1024, got 100000",)),
    ((*RUN, "--nonsense"), {}, 2, ("unrecognized arguments: --nonsense", "poolrt run --help")),
    ((*RUN, "--engine", "cuda"), {}, 2, ("engine: expected 'cpu', 'opencl' or 'opencl:INDEX', got 'cuda'",)),
    ((*RUN, "--engine", "opencl:99"), {}, 1, ("there is no engine opencl:99; there is opencl:0 ",)),
    (
        (*RUN, "--engine", "opencl"),
        {"OCL_ICD_VENDORS": "/nonexistent", "POCL_DEVICES": "none"},
        1,
        ("there is no OpenCL device", "install a driver", "poolrt doctor"),
    ),
    (RUN, {"POOLRT_REDIS_URL": "http://localhost"}, 2, ("POOLRT_REDIS_URL: expected URL starting with redis://",)),
    (RUN, {"POOLRT_REDIS_URL": "redis://127.0.0.1:1"}, 1, ("redis://127.0.0.1:1 is not available", UNREACHABLE)),
    (RUN, {"POOLRT_REDIS_URL": "redis://:secret@127.0.0.1:1"}, 1, ("redis://:***@127.0.0.1:1", UNREACHABLE)),
    (RUN, {"POOLRT_REDIS_URL": "unix:///nonexistent"}, 1, ("unix:///nonexistent is not available", UNREACHABLE)),
    (("cache", "stats"), {"POOLRT_REDIS_URL": "redis://127.0.0.1:1"}, 1, ("is not available", UNREACHABLE)),
    (("run", "huge.onnx", *RANDOM), {"POOLRT_ARENA_BYTES": "1MiB"}, 1, ("arena", "POOLRT_ARENA_BYTES")),
    (("run", "huge.onnx", *RANDOM), {"POOLRT_ARENA_BYTES": "20MiB"}, 1, ("arena", "POOLRT_ARENA_BYTES")),
    (RUN, {"POOLRT_ARENA_BYTES": "1"}, 2, ("POOLRT_ARENA_BYTES: expected number of bytes >= 1048576",)),
    (RUN, {"POOLRT_WORKERS": "-1"}, 2, ("POOLRT_WORKERS: expected integer from 0 to 1024, got '-1'",)),
    (RUN, {"POOLRT_NAMESPACE": "a/b"}, 2, ("POOLRT_NAMESPACE: expected ",)),
    (RUN, {"POOLRT_KEY_FILE": "open.key"}, 1, ("open.key is refused", "chmod 600")),
    (RUN, {"POOLRT_HOME": "open"}, 1, ("open is refused: its mode 0777 lets group or others", "; run: chmod go-w /")),
    ((*RUN, "--config", "none.toml"), {}, 2, ("none.toml: cannot be read: No such file",)),
    ((*RUN, "--config", "syntax.toml"), {}, 2, ("syntax.toml: is not TOML",)),
    ((*RUN, "--config", "unknown.toml"), {}, 2, ("unknown.toml: [pool] workerz: no such setting; known: ",)),
    (RUN, {"POOLRT_CONFIG": "unknown.toml"}, 2, ("unknown.toml: [pool] workerz: no such setting",)),
]


IDS = [f"{'-'.join(said[0].split()[:5])}-{number}" for number, (_, _, _, said) in enumerate(CASES)]


#: Cases that start processes and are like another one of these: no device, no server, no memory.
ALIKE = ("opencl:99", "redis://:secret@127.0.0.1:1", "unix:///nonexistent", "1MiB")


def is_in_a_program(number: int) -> bool:
    """Return whether `make test` has a case in a program of its own."""
    words, environ, _, _ = CASES[number]
    starts = starts_processes(words, environ) and not {*words, *environ.values()} & {*ALIKE}
    return number == 0 or (starts and words[0] == "run")


def starts_processes(words: tuple[str, ...], environ: dict[str, str]) -> bool:
    """Return whether a case goes on to a pool or a server, or to what the environment says of them."""
    return bool(environ) or "wrong.npz" in words or "opencl:99" in words


@pytest.mark.parametrize(
    ("words", "environ", "status", "said"),
    [
        pytest.param(*case, id=name, marks=[] if is_in_a_program(number) else pytest.mark.slow)
        for number, (case, name) in enumerate(zip(CASES, IDS, strict=True))
    ],
)
@pytest.mark.one_in(3)
def test_what_cannot_be_done_is_refused_in_one_line_and_leaves_nothing(
    place: Surroundings, words: tuple[str, ...], environ: dict[str, str], status: int, said: tuple[str, ...]
) -> None:
    before = sorted(path.name for path in place.folder.iterdir())
    done = place.call(*words, "--json", **environ)
    check(done.returncode, done.stdout, done.stderr, status, said)
    place.assert_nothing_is_left()
    assert sorted(path.name for path in place.folder.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "environ", "status", "said"),
    [
        pytest.param(*case, id=name, marks=[pytest.mark.slow] * (number % 2))
        for number, (case, name) in enumerate(zip(CASES, IDS, strict=True))
        if not starts_processes(*case[:2])
    ],
)
def test_the_command_refuses_what_cannot_be_done_and_leaves_nothing(
    place: Surroundings, words: tuple[str, ...], environ: dict[str, str], status: int, said: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    # In this process, which has imported what the command needs: a process of its own takes most of a second for that
    before = sorted(path.name for path in place.folder.iterdir())
    for name in [name for name in os.environ if name.startswith("POOLRT_")]:
        monkeypatch.delenv(name)
    for name, value in place.environment(**environ).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(place.folder)
    found = main([*words, "--json"])
    shown = capfd.readouterr()
    check(found, shown.out, shown.err, status, said)
    place.assert_nothing_is_left()
    assert sorted(path.name for path in place.folder.iterdir()) == before


def check(found: int, out: str, err: str, status: int, said: tuple[str, ...]) -> None:
    """Raise AssertionError unless a program has ended with the status and one line that says all that it should."""
    assert (found, err.count("\n")) == (status, 1), err
    assert err.startswith("poolrt: ")
    for each in said:
        assert each in err
    assert "secret" not in err
    assert "internal error" not in err
    assert err == f"poolrt: {json.loads(out)['error']['message']}\n"
