"""A kernel that several processes need at one moment: one of them compiles it, whatever becomes of that one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.cachestore import CacheStore, CreationFailed
from poolrt.numba.process_store import process_store

#: Calls a kernel at a moment, and prints the result and the counts. With "stuck" it says so and never compiles.
_PROCESS = """
import json, sys, time
import numpy as np
import poolrt
from poolrt.kernels.kernel import Kernel

@poolrt.kernel("void(f8[::1])")
def cube(x):
    for i in range(x.shape[0]):
        x[i] = x[i] * x[i] * x[i]

if sys.argv[1] == "stuck":
    def stuck(self):
        print("stuck", flush=True)
        time.sleep(3600)
    Kernel._create = stuck
else:
    time.sleep(max(0.0, float(sys.argv[1]) - time.time()))
x = np.full(3, 2.0)
cube(x)
print(json.dumps({"right": x.tolist() == [8.0] * 3, **poolrt.kernels.stats()}))
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the home of the stores of this process and of its children."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("POOLRT_HOME", str(folder))
    process_store.cache_clear()
    yield folder
    process_store().close()
    process_store.cache_clear()
    CacheStore.connect(home=str(folder)).down()


def _start(word: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", _PROCESS, word], stdout=subprocess.PIPE, text=True)


def _found(process: subprocess.Popen[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(process.communicate(timeout=110)[0].splitlines()[-1])
    assert process.returncode == 0
    return found


@pytest.mark.slow
def test_eight_processes_at_one_moment_compile_a_kernel_once(home: Path) -> None:
    begin = str(time.time() + 4.0)
    counts = [_found(process) for process in [_start(begin) for _ in range(8)]]
    assert all(each["right"] for each in counts)
    assert sum(each["created"] for each in counts) == 1
    assert sum(each["hits"] + each["waited"] for each in counts) == 7


@pytest.mark.slow
@pytest.mark.parametrize("redis", [True, False], ids=["redis", "files"])
def test_the_kernel_of_a_creator_that_is_killed_is_compiled_by_a_waiting_process(
    home: Path, monkeypatch: pytest.MonkeyPatch, redis: bool
) -> None:
    if not redis:
        monkeypatch.setenv("POOLRT_REDIS_URL", f"unix://{home}/none.sock")
    creator = _start("stuck")
    try:
        assert creator.stdout is not None
        assert creator.stdout.readline() == "stuck\n"
        others = [_start("0") for _ in range(2)]
        # Waiting processes have nothing to say: give them the time that a start takes, and see that none has compiled
        with pytest.raises(subprocess.TimeoutExpired):
            others[0].wait(3)
    finally:
        creator.kill()
        creator.communicate()
    begin = time.monotonic()
    counts = [_found(process) for process in others]
    assert time.monotonic() - begin < 60
    assert all(each["right"] for each in counts)
    assert sum(each["created"] for each in counts) == 1


def test_a_waiting_process_gets_the_creator_s_error_with_function_file_and_line(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POOLRT_REDIS_URL", f"unix://{home}/none.sock")

    def unfit(x: Any) -> None:
        x[0] = x.nothing

    kernel = poolrt.kernel("void(f8[::1])")(unfit)
    main, begun, raised = threading.get_ident(), threading.Event(), []

    def create() -> bytes:
        begun.set()
        until = time.monotonic() + 60
        while time.monotonic() < until and not _waits(main):
            time.sleep(0.01)
        return kernel._create()

    def lead() -> None:
        with CacheStore.connect(home=str(home)) as other:
            try:
                other.fetch_or_create(kernel.key(), create)
            except CreationFailed as error:
                raised.append(str(error))

    # Given another holder of the lease, which fails once this thread waits for it
    leader = threading.Thread(target=lead)
    leader.start()
    assert begun.wait(60)
    # When this thread calls the kernel, then it raises the same error, which says where the function is
    with pytest.raises(CreationFailed) as error:
        kernel(np.zeros(1))
    leader.join(60)
    assert raised == [str(error.value)]
    place = f"kernel {unfit.__qualname__} ({__file__}:{unfit.__code__.co_firstlineno}): "
    assert str(error.value).startswith(f"creation failed with CompileError: {place}Numba rejects it: Unknown attribute")


def _waits(thread: int) -> bool:
    frame: Any = sys._current_frames()[thread]
    while frame is not None:
        if os.path.basename(frame.f_code.co_filename) == "file_lease.py":
            return True
        frame = frame.f_back
    return False
