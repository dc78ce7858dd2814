"""What tests leave behind is named, of any kind and under any parent; what is just ending has time to end."""

from __future__ import annotations

import json
import re

from tests.workers.own_process import python

#: Prints for each kind of thing what is said of it.
LEAVING = """
import json, os, re, signal, subprocess, tempfile, time
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
import pytest
from tests.left_behind import living, nothing_left_behind

def start(*words):
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

def begun(pid, command="sleep.*"):
    # Between two programs a process has no command line
    until = time.monotonic() + 30
    while not re.match(command, Path(f"/proc/{pid}/cmdline").read_text()):
        assert time.monotonic() < until
        time.sleep(0.001)
    return pid

def end(pid):
    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 30
    while pid in living():
        assert time.monotonic() < until
        time.sleep(0.001)

def child():
    started.append(begun(start("sleep", "1001").pid))

def orphan():
    shell = start("sh", "-c", "setsid sleep 1002 >/dev/null & echo $!")
    started.append(begun(int(shell.communicate()[0])))

def forked():
    pid = os.fork()
    if not pid:
        signal.pause()
    started.append(pid)

def file():
    os.close(tempfile.mkstemp(suffix=".left")[0])

def memory():
    blocks.append(SharedMemory(create=True, size=1))
    blocks[-1].close()

def nothing():
    # Multiprocessing keeps a process of its own for such memory
    block = SharedMemory(create=True, size=1)
    block.close()
    block.unlink()
    with tempfile.NamedTemporaryFile():
        pass

def trial():
    with open(tempfile.gettempdir() + "/abc_1234", "wb") as file:
        file.write(b"blat")

def ending():
    ended.append(start("sleep", "0.3"))

resource_tracker.ensure_running()
begun(resource_tracker._resource_tracker._pid, ".*resource_tracker")

said, started, blocks, ended = {}, [], [], []
for what, seconds in {child: 0, orphan: 0, forked: 0, file: 0, memory: 0, nothing: 0, trial: 0, ending: 30}.items():
    try:
        with nothing_left_behind(seconds):
            what()
        said[what.__name__] = "nothing"
    except pytest.fail.Exception as error:
        said[what.__name__] = str(error)
    finally:
        while blocks:
            blocks.pop().unlink()
        while started:
            end(started.pop())
print(json.dumps(said))
"""


def test_what_is_left_behind_is_named() -> None:
    said: dict[str, str] = json.loads(python(LEAVING))
    expected = {
        "child": r"process \d+: sleep 1001 ",
        "orphan": r"process \d+: sleep 1002 ",
        "forked": r"process \d+: .*python.*",
        "file": r"file \S+/tests-\w+/\w+\.left",
        "memory": r"shared memory /dev/shm/psm_\w+",
        "nothing": None,
        "trial": None,
        "ending": None,
    }
    assert list(said) == list(expected)
    for what, line in expected.items():
        wanted = "nothing" if line is None else f"these tests have left behind:\n{line}"
        assert re.fullmatch(wanted, said[what], re.DOTALL), f"{what}: {said[what]}"
