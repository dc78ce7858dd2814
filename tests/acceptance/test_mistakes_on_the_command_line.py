"""What newcomers mistype on the command line: one line that says what is wrong and what to write, word for word."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from poolrt.cli import main


def _save(path: Path, *nodes: onnx.NodeProto, dims: tuple[int | str, ...] = (1, 4)) -> None:
    """Write a model from x to y."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    scale = helper.make_tensor("s", TensorProto.FLOAT, [4], [1.0] * 4)
    graph = helper.make_graph(nodes, "small", [x], [y], [scale])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and what may be taken for one."""
    place = tmp_path_factory.mktemp("mistakes")
    relu = helper.make_node("Relu", ["x"], ["y"], name="first")
    _save(place / "model.onnx", relu)
    _save(place / "open.onnx", relu, dims=("N", "W"))
    text = helper.make_node("Cast", ["x"], ["e"], name="text", to=TensorProto.STRING)
    _save(
        place / "missing.onnx",
        helper.make_node("StringNormalizer", ["x"], ["a"], name="strange", equation="ab->ba"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("StringConcat", ["b", "b"], ["c"]),
        helper.make_node("StringNormalizer", ["c"], ["d"], equation="ab->ba"),
        text,
        helper.make_node("FusedX", ["d"], ["y"], domain="com.example"),
    )
    _save(
        place / "one_missing.onnx",
        helper.make_node("StringNormalizer", ["x"], ["y"], name="strange", equation="ab->ba"),
    )
    (place / "pointer.onnx").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 1\n")
    (place / "page.onnx").write_text("<!DOCTYPE html><html>")
    (place / "torch.onnx").write_bytes(b"PK\x03\x04" + bytes(40))
    (place / "keras.onnx").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(40))
    (place / "lite.onnx").write_bytes(b"\x1c\0\0\0TFL3" + bytes(40))
    (place / "weights.onnx").write_bytes(b"\x40\0\0\0\0\0\0\0{" + bytes(40))
    (place / "packed.onnx").write_bytes(b"\x1f\x8b\x08" + bytes(40))
    (place / "empty.onnx").touch()
    (place / "noise.onnx").write_bytes(b"\xff" * 40)
    (place / "a.csv").write_text("1,2,3\n")
    (place / "t.toml").write_text("[poool]\nworkers = 2\n")
    (place / "k.toml").write_text("[pool]\nthread = 2\n")
    np.save(place / "x.npy", np.zeros((1, 4), "f4"))
    return place


@pytest.fixture(autouse=True)
def _here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("POOLRT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("POOLRT_HOME", str(place / "home"))
    monkeypatch.chdir(place)


_LISTS: Final = "docs/onnx.md lists the operators that exist, and so does poolrt check --operators"


def _cases() -> Iterator[tuple[str, str]]:
    """Yield each command of the list, and the line that it is to print after its exit status."""
    text = Path(__file__).with_name("mistakes.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    yield from zip(lines[::2], lines[1::2], strict=True)


CASES: Final = list(_cases())


def test_the_list_has_at_least_60_mistakes() -> None:
    assert len({command for command, _ in CASES}) == len(CASES) >= 60


@pytest.mark.parametrize(("command", "expected"), CASES, ids=[command for command, _ in CASES])
def test_a_mistake_is_one_line_that_says_what_to_write(
    command: str, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(command)
    while (word := words.pop(0)) != "poolrt":
        monkeypatch.setenv(*word.split("=", 1))
    status = main(words)
    shown = capsys.readouterr()
    assert f"{status} {shown.err}" == f"{expected.replace(' ', ' poolrt: ', 1)}\n"
    if "--json" in words:
        assert json.loads(shown.out)["error"]["message"] == expected.partition(" ")[2]
    elif words[0] != "check":  # which prints a table of operators
        assert shown.out == ""


def test_an_unknown_setting_of_a_file_lists_those_that_exist_and_names_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["status", "--config", "k.toml"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("poolrt: k.toml: [pool] thread: no such setting; known: socket, workers, threads, ")
    assert said.endswith("; the nearest is 'threads'\n")
    assert said.count("\n") == 1


def test_a_model_of_unknown_bytes_is_named_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "noise.onnx"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("poolrt: noise.onnx: not an ONNX model: ")
    assert said.endswith("; export or download it again\n")
    assert said.count("\n") == 1


def test_check_and_run_name_all_missing_operators_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    expected = (
        "poolrt: missing.onnx: node 'strange' (StringNormalizer, opset 17): poolrt has no such operator; 3 operators are "
        "missing: StringNormalizer (2 nodes), StringConcat (1 node), com.example.FusedX (1 node); Cast (1 node): data type 8 "
        "is not supported; "
        f"{_LISTS}\n"
    )
    assert main(["check", "missing.onnx", "--json"]) == 1
    shown = capsys.readouterr()
    assert shown.err.splitlines(keepends=True)[-1] == expected
    found = json.loads(shown.out)
    assert found["runs"] is False
    uses = [(use["operator"], use["count"], use["node"], use["missing"]) for use in found["unsupported"]]
    assert uses == [
        ("StringNormalizer", 2, "strange", True),
        ("StringConcat", 1, "c", True),
        ("Cast", 1, "text", False),
        ("com.example.FusedX", 1, "y", True),
    ]


def test_names_of_a_model_cannot_control_the_terminal(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("Odd\x1b[31m", ["x"], [f"h{number}"], name="\x1b]0;" + "n" * 500) for number in range(3)]
    _save(place / "odd.onnx", *nodes, helper.make_node("Relu", ["x"], ["y"]))
    assert main(["check", "odd.onnx"]) == 1
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert "Odd\\x1b[31m" in shown.out
    assert max(map(len, shown.out.splitlines())) < 300


def test_check_says_how_a_model_will_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "open.onnx", "--shape", "x=2,4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["runs"], found["unsupported"], found["engine"], found["nodes"]) == (True, [], "cpu", 1)
    assert found["inputs"] == [{"name": "x", "dtype": "float32", "shape": [2, 4], "declared": ["N", "W"]}]
    assert found["outputs"] == [{"name": "y", "dtype": "float32", "shape": [2, 4]}]
    step = {"operation": "eltwise", "implementation": "native:eltwise", "engine": "cpu", "count": 1}
    assert found["steps"] == [step]
    assert (found["operators"], found["data_types"]) == ({"Relu": 1}, {"float32": 2})
    assert found["memory"] == {"weights": 0, "arena": 64, "workspace": 0, "scratchpad": 0}
    assert (found["fused"], found["folded"], found["references"], found["expanded"]) == (0, [], [], {})


def test_the_page_and_the_command_list_exactly_the_operators_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    from poolrt.graph.onnx.control_flow import CONTROL_FLOW
    from poolrt.graph.onnx.operators import OPERATORS, OPERATORS_OF, SEQUENCES

    known = sorted((*OPERATORS, *CONTROL_FLOW, *SEQUENCES))
    foreign = {domain: sorted(operators) for domain, operators in OPERATORS_OF.items()}
    assert main(["check", "--operators"]) == 0
    assert capsys.readouterr().out.split() == [
        *known,
        *sorted(f"{domain}.{name}" for domain, names in foreign.items() for name in names),
    ]
    page = (Path(__file__).parents[2] / "docs" / "onnx.md").read_text(encoding="utf-8")
    tables = [part.partition("\n\n")[0] for part in page.split("| --- | --- |")[1:4]]
    listed = [
        sorted(word.strip("`") for row in table.splitlines() if row for word in row.split("|")[2].split())
        for table in tables
    ]
    assert listed == [known, foreign["com.microsoft"], foreign["ai.onnx.ml"]]


def test_a_warning_of_the_command_is_one_line_too(place: Path) -> None:
    # A home that cannot be written, and a server that does not answer: Python would print the line of code, too
    environment = {**os.environ, "POOLRT_HOME": "/proc/none", "POOLRT_REDIS_URL": "redis://127.0.0.1:1"}
    command = [sys.executable, "-m", "poolrt", "cache", "list"]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=60, check=False)
    warning, error = done.stderr.splitlines()
    assert warning == (
        "poolrt: warning: signing key file /proc/none/signing.key is refused: it cannot be made: No such file or directory; "
        "nothing that is created is kept: set POOLRT_HOME to a folder that can be written"
    )
    assert error.startswith("poolrt: the store's Redis at redis://127.0.0.1:1 is not available: ")
    assert (done.returncode, done.stdout) == (1, "")
