"""Verbose lines of processes: what the environment asks for, and what they are written to."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest

from poolrt.cachestore import CacheStore

from ..own_process import ANSWER_S, ROOT
from .lines import parsed, relu, relu_text


@pytest.fixture(scope="module")
def home(store: CacheStore) -> Path:
    """Return the cache folder of processes that find no Redis, and what other tests have created: the kernel of a CPU."""
    relu(store)
    return Path(store.options.home)


def run(code: str, kind: str, home: Path, *shell: str, **env: str) -> tuple[str, str]:
    """Return what a new interpreter writes to standard output and error for code that may call ``execute``.

    ``shell`` is what starts it, with the command as arguments.
    """
    quiet = {name: value for name, value in os.environ.items() if not name.startswith("POOLRT_")}
    own = {"POOLRT_HOME": str(home), "POOLRT_REDIS_URL": f"unix://{home}/none.sock"}
    child = subprocess.run(
        [*shell, sys.executable, "-c", _EXECUTE + code, kind],
        cwd=ROOT,
        env={**quiet, **own, **env},
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return child.stdout, child.stderr


_EXECUTE = """
import os, sys
import poolrt
from poolrt.workers import Eltwise
from poolrt.workers.desc import MemoryDesc

kind = sys.argv[1]
engine, desc = poolrt.Engine(kind), MemoryDesc((3, 64), "f32")
src, dst = poolrt.Memory(desc, engine), poolrt.Memory(desc, engine)
stream = poolrt.Stream(engine)

def execute():
    primitive = Eltwise.PrimitiveDesc(engine, desc, desc, "relu").create()
    primitive.execute(stream, {1: src, 17: dst})
    primitive.execute(stream, {1: src, 17: dst})
    stream.wait()
"""


def test_on_opencl_every_execution_has_one_line_once_it_was_waited_for(device: str, home: Path) -> None:
    # Given a stream that was made, and used, before verbose was turned on
    code = "execute(); poolrt.set_verbose(2); execute(); poolrt.set_verbose(0); execute(); poolrt.set_verbose(1); execute()"
    lines = parsed(run(code, "opencl", home)[1])
    assert [line.operation for line in lines] == ["create:cache_hit", *["exec"] * 4]
    assert {line.text for line in lines} == {
        relu_text().replace("cpu,eltwise,native:eltwise", "opencl,eltwise,opencl:vector")
    }
    assert all(line.milliseconds > 0 for line in lines)


def test_the_environment_turns_lines_on_and_the_interface_comes_before_it(home: Path) -> None:
    code = "execute(); poolrt.set_verbose(0); execute()"
    out, err = run(code, "cpu", home, POOLRT_VERBOSE="profile")
    first, *lines = err.splitlines()
    assert re.fullmatch(
        r"poolrt_verbose,info,process:\d+,template:operation,engine,.*,attributes,problem_desc,exec_time", first
    )
    assert [line.split(",")[1].partition(":")[0] for line in lines] == ["create", "exec", "exec"]
    assert out == ""


def test_a_wrong_variable_is_named_in_the_error(home: Path) -> None:
    code = "try:\n    execute()\nexcept ValueError as error:\n    print(error)"
    out, err = run(code, "cpu", home, POOLRT_VERBOSE="loud")
    assert out == "POOLRT_VERBOSE: expected one of 0, 1, 2, profile, profile_create, profile_exec, got 'loud'\n"
    assert err == ""


def test_off_nothing_is_written_and_nothing_that_describes_primitives_is_imported(home: Path) -> None:
    code = "execute(); print('poolrt.workers.verbose.text' in sys.modules)"
    assert run(code, "cpu", home) == ("False\n", "")


def test_a_level_that_is_set_holds_although_the_environment_asks_for_an_unknown_one(home: Path) -> None:
    _, err = run("poolrt.set_verbose(1); execute()", "cpu", home, POOLRT_VERBOSE="loud")
    assert [line.operation for line in parsed(err)] == ["exec"] * 2


def test_lines_of_a_process_without_standard_error_go_to_no_file_that_got_its_number(
    home: Path, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    code = (
        f"file = open({str(file)!r}, 'w'); print(file.fileno()); poolrt.set_verbose(2); execute()\n"
        "from poolrt.workers.verbose.output import verbose\nprint(verbose().lost)"
    )
    assert run(code, "cpu", home, "sh", "-c", 'exec "$0" "$@" 2>&-')[0] == "2\n3\n"
    assert file.read_bytes() == b""


def test_lines_of_threads_and_processes_that_share_a_pipe_are_whole() -> None:
    # Given processes whose threads write lines as long as a pipe takes in one piece
    code = """
import sys, threading
from poolrt.workers.verbose.output import Verbose
verbose = Verbose("1")
def write(letter):
    for _ in range(200):
        verbose.executed(letter * int(sys.argv[2]), 0)
threads = [threading.Thread(target=write, args=(letter,)) for letter in sys.argv[1]]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
    length = select.PIPE_BUF - len("poolrt_verbose,exec,,0\n")
    received, error = os.pipe()
    writers = [
        subprocess.Popen([sys.executable, "-c", code, letters, str(length)], cwd=ROOT, stderr=error)
        for letters in ("ab", "cd", "ef")
    ]
    os.close(error)
    # When all of them write to one pipe
    with open(received, encoding="ascii") as pipe:
        lines = [line for line in pipe if ",info," not in line]
    # Then each line is there, and whole
    assert [writer.wait(ANSWER_S) for writer in writers] == [0] * 3
    assert sorted(lines) == sorted(
        f"poolrt_verbose,exec,{letter * length},0\n" for letter in "abcdef" for _ in range(200)
    )


def test_each_line_is_written_by_itself_the_first_of_a_process_too(home: Path) -> None:
    # Given a socket that keeps apart what is written at a time: a pipe may mix what is longer than one line
    code = (
        "import socket; kept, given = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET); os.dup2(given.fileno(), 2)\n"
        "poolrt.set_verbose(1); execute(); print([kept.recv(1 << 16).decode().count(os.linesep) for _ in range(2)])"
    )
    assert run(code, "cpu", home)[0] == "[1, 1]\n"


def test_lines_without_a_reader_are_counted_and_harm_no_execution(home: Path) -> None:
    closed = "read, write = os.pipe(); os.dup2(write, 2); os.close(write); os.close(read);"
    code = (
        closed
        + "poolrt.set_verbose(1); execute()\nfrom poolrt.workers.verbose.output import verbose\nprint(verbose().lost)"
    )
    assert run(code, "cpu", home)[0] == "2\n"


def test_a_pipe_that_is_full_and_does_not_block_loses_whole_lines_and_harms_no_execution(home: Path) -> None:
    code = (
        "read, write = os.pipe(); os.set_blocking(write, False); os.dup2(write, 2); poolrt.set_verbose(1)\n"
        "os.write(2, bytes(1 << 16)); execute(); os.read(read, 1 << 16)\n"
        "for _ in range(400): execute()\n"
        "from poolrt.workers.verbose.output import verbose\n"
        "print(verbose().lost); print(os.read(read, 1 << 20).decode(), end='')"
    )
    lost, _, written = run(code, "cpu", home)[0].partition("\n")
    lines = parsed(written)
    assert written.startswith("poolrt_verbose,info,")
    assert {line.text for line in lines} == {relu_text()}
    assert 0 < len(lines) == 802 - int(lost) < 800
