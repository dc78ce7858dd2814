"""Limits of the system that a run does not fit into: status 1 and lines that name the limit, in bounded time, never a hang."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.drills.interrupts import Place

#: Seconds after which a run counts as hanging.
BOUND_S = 30.0
#: A user that may read this environment and has none of root's other rights.
_ORDINARY = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"]
_ORDINARY += ["--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search"]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    place = Place()
    yield place
    place.close()


def _run(
    place: Place, *words: str, limits: dict[int, int] | None = None, before: list[str] | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        for which, value in (limits or {}).items():
            resource.setrlimit(which, (value, value))

    return subprocess.run(
        [*(before or []), sys.executable, "-m", "poolrt", "run", "m.onnx", "--random-inputs", "0", *words],
        env=place.environment("limits", cold=False) | more,
        cwd=place.folder,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
        preexec_fn=limit,
    )


@pytest.mark.parametrize(
    ("limit", "nbytes", "named"),
    [
        (resource.RLIMIT_AS, 1 << 30, "the limit of address space (ulimit -v) is 1073741824 bytes"),
        (resource.RLIMIT_FSIZE, 4096, "the limit of file sizes (ulimit -f) is 4096 bytes"),
    ],
)
@pytest.mark.one_in(2)
def test_an_arena_beyond_a_limit_of_the_process_is_refused_in_one_line(
    place: Place, limit: int, nbytes: int, named: str
) -> None:
    done = _run(place, limits={limit: nbytes}, POOLRT_ARENA_BYTES="4 GiB")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        "poolrt: the coordinator could not start: 4294967296 bytes of shared memory are refused"
    )
    assert named in done.stderr
    assert done.stderr.endswith("; lower the setting arena_bytes (POOLRT_ARENA_BYTES)\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("count", [12, *(pytest.param(count, marks=pytest.mark.slow) for count in range(6, 16))])
def test_a_run_with_few_open_files_ends(place: Place, count: int) -> None:
    done = _run(place, limits={resource.RLIMIT_NOFILE: count})
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or "Too many open files" in done.stderr


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="only root can become an ordinary user")
@pytest.mark.parametrize("count", [3, *(pytest.param(count, marks=pytest.mark.slow) for count in (1, 2, 4, 5, 6, 8))])
def test_a_run_with_few_processes_ends(place: Place, tmp_path: Path, count: int) -> None:
    os.chown(tmp_path, 12345, 12345)
    home = {"POOLRT_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)}
    done = _run(place, limits={resource.RLIMIT_NPROC: count}, before=_ORDINARY, **home)
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or "Resource temporarily unavailable" in done.stderr or "new thread" in done.stderr
    if count <= 3:
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)


@pytest.mark.slow
def test_shared_memory_is_not_limited_by_the_size_of_dev_shm(place: Place) -> None:
    tiny = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"', "sh"]
    if subprocess.run([*tiny, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this process may not mount a file system")
    done = _run(place, "--json", before=tiny)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"]["y"]["shape"] == [1, 16, 8, 8]


@pytest.mark.slow
@pytest.mark.parametrize("read_only", [False, True], ids=["full", "read-only"])
def test_a_run_without_a_home_that_can_be_written_warns_once_and_works(
    place: Place, tmp_path: Path, read_only: bool
) -> None:
    options, fill = ("size=1m,ro", "true") if read_only else ("size=4k", f"head -c 4096 /dev/zero > {tmp_path}/fill")
    script = f'mount -t tmpfs -o {options} tmpfs {tmp_path} && {fill} && exec "$@"'
    mounted = ["unshare", "-m", "sh", "-c", script, "sh"]
    if subprocess.run([*mounted, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this process may not mount a file system")
    done = _run(place, "--json", before=mounted, POOLRT_HOME=str(tmp_path / "home"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["primitives"]["created"] == 2
    assert done.stderr.count("warning: ") == 1
    assert done.stderr.startswith(f"poolrt: warning: signing key file {tmp_path}/home/signing.key is refused: ")
