"""The command line: help with examples, one line for an error, exit statuses, one JSON object."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from poolrt.cli import main
from poolrt.cli.command_line import COMMANDS
from poolrt.version import VERSION


def _call(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("POOLRT_")} | environ
    command = [sys.executable, "-m", "poolrt", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)


def test_the_program_names_its_commands_and_gives_examples() -> None:
    done = _call("--help")
    assert done.returncode == 0
    for command in COMMANDS:
        assert f"\n    {command} " in done.stdout
    assert "examples:" in done.stdout


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_help_of_each_command_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    shown = capsys.readouterr().out
    assert left.value.code == 0
    assert "examples:" in shown
    assert f"\n  poolrt {command}" in shown
    assert "--json" in shown


def test_version_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"poolrt {VERSION}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the following arguments are required: COMMAND (see poolrt --help)"),
        (["frobnicate"], "argument COMMAND: invalid choice: 'frobnicate'"),
        (["run"], "the following arguments are required: MODEL.onnx (see poolrt run --help)"),
        (["run", "m.onnx", "--workers", "0"], "argument --workers: expected an integer of at least 1, got 0"),
        (["run", "m.onnx", "--repeat", "x"], "argument --repeat: expected an integer of at least 1, got x"),
        (["run", "m.onnx", "--random-inputs", "-1"], "argument --random-inputs: expected an integer of at least 0"),
        (["run", "m.onnx", "--atol", "nan"], "argument --atol: expected a finite number of at least 0, got nan"),
        (["run", "m.onnx", "--atol", "x"], "argument --atol: expected a finite number of at least 0, got x"),
        (["run", "m.onnx", "--frob"], "unrecognized arguments: --frob"),
        (["cache"], "the following arguments are required: ACTION (see poolrt cache --help)"),
        (["cache", "frobnicate"], "argument ACTION: invalid choice: 'frobnicate'"),
        (["cache", "list", "--limit", "x"], "argument --limit: expected an integer of at least 1, got x"),
    ],
)
def test_wrong_usage_exits_with_status_2_and_a_one_line_reason(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"poolrt: {said}")
    assert shown.err.count("\n") == 1


def test_with_json_wrong_usage_is_one_object_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["type"] == "UsageError"


def test_a_missing_model_ends_with_status_2_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "/nowhere/model.onnx", "--random-inputs", "0"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "poolrt: /nowhere/model.onnx: no such file\n"


def test_with_json_an_error_is_one_object_on_standard_output_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "/nowhere/model.onnx", "--json"]) == 2
    shown = capsys.readouterr()
    expected = {"error": {"type": "UsageError", "message": "/nowhere/model.onnx: no such file"}}
    assert json.loads(shown.out) == expected
    assert shown.err == "poolrt: /nowhere/model.onnx: no such file\n"


def test_a_wrong_settings_file_ends_with_status_2_naming_file_and_key(tmp_path: Path) -> None:
    config = tmp_path / "x.toml"
    config.write_text("[cache]\ncapacity = 'abc'\n")
    done = _call("doctor", "--config", str(config))
    assert done.returncode == 2
    assert done.stderr == f"poolrt: {config}: [cache] capacity: expected integer >= 0, got 'abc'\n"


def test_a_wrong_variable_ends_with_status_2_naming_it() -> None:
    done = _call("doctor", POOLRT_WORKERS="many")
    assert done.returncode == 2
    assert done.stderr == "poolrt: POOLRT_WORKERS: expected integer from 0 to 1024, got 'many'\n"


def test_a_wrong_engine_on_the_command_line_ends_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "m.onnx", "--engine", "cuda"]) == 2
    assert "engine: expected 'cpu', 'opencl' or 'opencl:INDEX', got 'cuda'" in capsys.readouterr().err


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_exits_early_causes_no_traceback(unbuffered: str) -> None:
    # Given a pipe whose reader has gone
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "poolrt", "doctor", "--opencl-timeout", "0.001"]
    env = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    try:
        done = subprocess.run(
            command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False, env=env
        )
    finally:
        os.close(write)
    # Then nothing is said, and nothing breaks at the interpreter's end
    assert done.returncode == 1
    assert done.stderr == ""


def test_help_imports_nothing_heavy() -> None:
    heavy = "numpy numba llvmlite redis pyopencl rich onnx asyncio importlib.metadata"
    code = (
        "import contextlib, io, sys; from poolrt.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main(['run', '--help'])\n"
        f"print(sorted(set('{heavy}'.split()) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "[]\n"
