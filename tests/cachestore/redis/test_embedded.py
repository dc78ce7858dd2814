"""The embedded server: one for all, private, found again after any end."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore import StoreUnavailable
from poolrt.cachestore.file_lock import lock_file, unlock_file
from poolrt.cachestore.redis.embedded import EmbeddedServer
from poolrt.cachestore.redis.server_binary import find_server

from ..server_programs import VERSIONS, missing, program_of
from ..waiting import wait_until
from .full_disk import REFUSAL, full_disk


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder whose server is stopped at the end."""
    yield tmp_path / "redis"
    EmbeddedServer(str(tmp_path / "redis")).down()


def pid_of(folder: Path) -> int:
    """Return the server's process."""
    return int((folder / "redis.pid").read_text())


def run_command(server: EmbeddedServer, *command: str) -> object:
    """Run one command."""
    import redis

    with redis.Redis.from_url(server.url) as client:
        return client.execute_command(*command)


def test_it_starts_once_and_stops_on_request(folder: Path) -> None:
    server = EmbeddedServer(str(folder))
    assert not server.is_running()
    server.ensure()
    pid = pid_of(folder)
    server.ensure()
    assert (server.is_running(), pid_of(folder)) == (True, pid)
    assert server.down()
    assert not server.is_running()
    assert not server.down()


def test_stopping_what_never_ran_is_no_error(tmp_path: Path) -> None:
    assert not EmbeddedServer(str(tmp_path / "nothing")).down()


def test_a_server_that_has_ended_was_not_running_while_its_watch_sweeps(folder: Path) -> None:
    server = EmbeddedServer(str(folder))
    server.ensure()
    assert server.down()
    # As the watch does, or the saving child of a killed server
    with (folder / "run.lock").open("rb+") as file:
        lock_file(file.fileno(), file.name)
        free = threading.Timer(0.3, unlock_file, [file.fileno()])
        free.start()
        assert not server.down()
        free.join()


def test_its_folder_and_socket_are_private(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    server = EmbeddedServer(str(folder))
    server.ensure()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert os.stat(server.socket_path).st_mode & 0o077 == 0
    assert run_command(server, "CONFIG", "GET", "port") == {b"port": b"0"}


def test_processes_that_start_at_once_share_one_server(folder: Path) -> None:
    code = """
import sys
from poolrt.cachestore.redis.embedded import EmbeddedServer
server = EmbeddedServer(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
server.ensure()
print(open(sys.argv[1] + "/redis.pid").read().strip(), server.is_running())
"""
    command = [sys.executable, "-c", code, str(folder)]
    starters = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    for starter in starters:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "ready\n"
    for starter in starters:
        assert starter.stdin is not None
        starter.stdin.write("\n")
        starter.stdin.flush()
    said = {starter.communicate(timeout=30)[0] for starter in starters}
    assert said == {f"{pid_of(folder)} True\n"}
    assert (folder / "redis.log").read_text().count("is starting oO0") == 1


def test_it_outlives_a_kill_with_its_data(folder: Path) -> None:
    server = EmbeddedServer(str(folder))
    server.ensure()
    run_command(server, "SET", "name", "value")
    pid = pid_of(folder)
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while server.is_running():
        assert time.monotonic() < deadline
    server.ensure()
    assert pid_of(folder) != pid
    assert run_command(server, "GET", "name") == b"value"


def test_a_kill_loses_no_answered_command_while_the_disk_is_slow(folder: Path, tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        missing("gcc", "gcc libc6-dev")
    # Given a server whose syncs take a second each
    source, library, program = tmp_path / "slow.c", tmp_path / "slow.so", tmp_path / "slow-redis"
    source.write_text(
        "#include <unistd.h>\n"
        "int fdatasync(int fd) { usleep(1000000); return 0; }\n"
        "int fsync(int fd) { usleep(1000000); return 0; }\n"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    program.write_text(f'#!/bin/sh\nLD_PRELOAD={library} exec {find_server(None)} "$@"\n')
    program.chmod(0o700)
    server = EmbeddedServer(str(folder), program=str(program))
    server.ensure()
    # When it is killed after commands for longer than a server puts off its writes between two syncs
    answered, until = 0, time.monotonic() + 1.5
    while time.monotonic() < until:
        run_command(server, "INCR", "number")
        answered += 1
        time.sleep(0.01)
    os.kill(pid_of(folder), signal.SIGKILL)
    wait_until(lambda: not server.is_running())
    # Then the next one has them all
    server.ensure()
    assert run_command(server, "GET", "number") == b"%d" % answered


def test_a_stop_keeps_its_data(folder: Path) -> None:
    server = EmbeddedServer(str(folder))
    server.ensure()
    run_command(server, "SET", "name", "value")
    server.down()
    server.ensure()
    assert run_command(server, "GET", "name") == b"value"


@pytest.mark.parametrize("which", VERSIONS)
def test_data_that_it_cannot_read_are_set_aside(folder: Path, tmp_path: Path, which: str) -> None:
    server = EmbeddedServer(str(folder), program=program_of(which, tmp_path))
    for _ in range(2):
        # Nothing that was set aside before is in the way.
        server.ensure()
        run_command(server, "SET", "name", "value")
        server.down()
        # Given data whose beginning is damaged
        (file,) = (
            path for path in (folder / "data").rglob("appendonly*") if path.is_file() and b"value" in path.read_bytes()
        )
        file.write_bytes(b"damaged" + file.read_bytes()[7:])
        # When it is started, then it has none, and can keep others
        server.ensure()
        assert run_command(server, "DBSIZE") == 0
        aside = folder / "data.unreadable" / file.relative_to(folder / "data")
        assert aside.read_bytes().startswith(b"damaged")


def test_data_are_not_set_aside_when_a_program_ends_without_complaining_of_them(folder: Path) -> None:
    server = EmbeddedServer(str(folder))
    server.ensure()
    run_command(server, "SET", "name", "value")
    server.down()
    with pytest.raises(StoreUnavailable, match="ended"):
        EmbeddedServer(str(folder), program="/bin/true").ensure()
    assert not (folder / "data.unreadable").exists()
    server.ensure()
    assert run_command(server, "GET", "name") == b"value"


def test_a_path_too_long_for_a_socket_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / ("long " * 12) / ("name" * 20) / "redis"
    server = EmbeddedServer(str(folder))
    place = Path(server.socket_path).parent
    try:
        server.ensure()
        assert len(server.socket_path) <= 107
        assert place.stat().st_mode & 0o777 == 0o700
        assert EmbeddedServer(str(folder)).is_running()
    finally:
        server.down()
    assert not place.exists()


@pytest.mark.parametrize("end", ["idle", "kill", "kill and remove"])
def test_a_socket_in_a_folder_of_its_own_goes_with_its_server(tmp_path: Path, end: str) -> None:
    folder = tmp_path / ("name" * 40) / "redis"
    server = EmbeddedServer(str(folder), idle_s=0.3 if end == "idle" else 60.0)
    place = Path(server.socket_path).parent
    # It listens there; an idle one may end at any time from now on.
    server.ensure()
    if end != "idle":
        pid = pid_of(folder)
        assert place.is_dir()
        if end == "kill and remove":
            shutil.rmtree(folder)
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not place.exists())
    wait_until(lambda: not watches(folder))


def test_a_start_right_after_a_kill_is_not_disturbed_by_the_sweep_of_the_old_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("name" * 40) / "redis"
    server = EmbeddedServer(str(folder), idle_s=60.0)
    try:
        for _ in range(10):
            server.ensure()
            os.kill(pid_of(folder), signal.SIGKILL)
        server.ensure()
        wait_until(lambda: len(watches(folder)) == 1)
        assert server.is_running()
    finally:
        server.down()


@pytest.mark.parametrize("name", ["with space", 'with"quote', "with\\backslash", "with#hash", "two\nlines", "ünïcode"])
@pytest.mark.one_in(2)
def test_any_folder_name_will_do(tmp_path: Path, name: str) -> None:
    server = EmbeddedServer(str(tmp_path / name))
    try:
        server.ensure()
        assert (tmp_path / name / "data").is_dir()
        assert run_command(server, "PING") in (b"PONG", True)
    finally:
        server.down()


def test_a_server_that_begins_to_listen_while_it_is_stopped_is_stopped(tmp_path: Path) -> None:
    server = EmbeddedServer(str(tmp_path / "s"))
    (tmp_path / "s").mkdir(mode=0o700)
    # Given a server that another process has started, and that still reads its data
    lock = os.open(tmp_path / "s" / "run.lock", os.O_RDWR | os.O_CREAT, 0o600)
    lock_file(lock, "run.lock")
    asked: list[bytes] = []

    def listen() -> None:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(server.socket_path)
            listening.settimeout(60)
            listening.listen()
            while b"SHUTDOWN\r\n" not in asked:
                connection, _ = listening.accept()
                with connection:
                    asked.append(connection.recv(100))
            os.close(lock)

    thread = threading.Timer(1.0, listen)
    thread.start()
    try:
        assert server.down()
    finally:
        thread.join(60)


def watches(folder: Path) -> list[str]:
    """Return the idle watches of a folder's server that are running."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if b"idle_watch" in command and str(folder).encode() in command:
            found.append(process.name)
    return found


@contextmanager
def used(server: EmbeddedServer) -> Iterator[Any]:
    """Return a client of a server that would stop without one, started again until one comes in time."""
    import redis

    with redis.Redis.from_url(server.url) as client:

        def comes() -> bool:
            server.ensure()
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False

        wait_until(comes)
        yield client


def test_without_clients_it_stops_after_a_while_and_starts_again_with_its_data(folder: Path) -> None:
    server = EmbeddedServer(str(folder), idle_s=0.3)
    with used(server) as client:
        client.set("name", "value")
    wait_until(lambda: not (folder / "redis.pid").exists())
    wait_until(lambda: not watches(folder))
    with used(server) as client:
        assert client.get("name") == b"value"


def test_a_client_keeps_it_alive(folder: Path) -> None:
    server = EmbeddedServer(str(folder), idle_s=0.2)
    with used(server) as client:
        pid = pid_of(folder)
        begin = time.monotonic()
        while time.monotonic() - begin < 0.8:
            assert client.ping()
            time.sleep(0.05)
        assert pid_of(folder) == pid


@pytest.mark.parametrize("end", ["down", "kill"])
def test_its_watch_ends_with_it(folder: Path, end: str) -> None:
    server = EmbeddedServer(str(folder), idle_s=60.0)
    server.ensure()
    assert len(watches(folder)) == 1
    if end == "down":
        server.down()
    else:
        os.kill(pid_of(folder), signal.SIGKILL)
    wait_until(lambda: not watches(folder))


def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give folders away")
    folder = tmp_path / "redis"
    folder.mkdir()
    os.chown(folder, 12345, -1)
    with pytest.raises(StoreUnavailable, match="belongs to user 12345, not to root"):
        EmbeddedServer(str(folder)).ensure()


def test_a_program_that_does_not_exist_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="/no/such/server is not a program"):
        EmbeddedServer(str(tmp_path / "redis"), "/no/such/server").ensure()


def test_a_program_that_fails_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="ended with 1"):
        EmbeddedServer(str(tmp_path / "redis"), "/bin/false").ensure()


def test_a_program_that_is_no_server_is_given_up_in_time(tmp_path: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(StoreUnavailable):
        EmbeddedServer(str(tmp_path / "redis"), "/bin/true").ensure(seconds=0.5)
    assert time.monotonic() - begin < 5.0


def test_a_frozen_server_is_given_up_in_time(folder: Path) -> None:
    server = EmbeddedServer(str(folder))
    server.ensure()
    os.kill(pid_of(folder), signal.SIGSTOP)
    begin = time.monotonic()
    try:
        with pytest.raises(StoreUnavailable):
            server.ensure(seconds=0.5)
    finally:
        os.kill(pid_of(folder), signal.SIGCONT)
    assert time.monotonic() - begin < 5.0
    assert (folder / "redis.log").read_text().count("is starting oO0") == 1


def test_a_server_that_cannot_write_is_given_up_at_once_with_its_reason(tmp_path: Path) -> None:
    server = EmbeddedServer(str(tmp_path / "redis"))
    begin = time.monotonic()
    with full_disk(server):
        with pytest.raises(StoreUnavailable, match=f"the server cannot write to {tmp_path}/redis/data: {REFUSAL}$"):
            server.ensure()
        assert not server.is_running()
    assert time.monotonic() - begin < 5.0


def test_the_search_finds_a_server_and_prefers_the_chosen_one() -> None:
    assert os.access(find_server(None), os.X_OK)
    assert find_server("/bin/true") == "/bin/true"


def test_a_server_on_the_path_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, version in (("redis-server", "5.0.14"), ("valkey-server", "7.2.5")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho 'Server v={version} sha=0'\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert find_server(None) == str(tmp_path / "valkey-server")
    (tmp_path / "valkey-server").unlink()
    assert find_server(None) != str(tmp_path / "redis-server")
