"""Listening at a path: what is replaced, what is left alone, and what becomes of the socket in the end."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from poolrt.connection.server import connect_socket
from poolrt.coordinator.listener import Listener
from poolrt.errors import CoordinatorLost
from tests.other_user import ForeignServer, needs_root

from ..pool.processes import wait_until


def test_a_listener_takes_connections_of_this_user_and_its_socket_goes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "s"
    listener = Listener(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(path))
        listener.accept().close()
    listener.close()
    assert not path.exists()
    listener.close()


def _opened(folder: Path) -> int:
    """Return how many descriptors of this process are of a folder."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # such as that of the list itself
            found += os.readlink(f"/proc/self/fd/{name}") == str(folder)
    return found


def test_a_listener_that_waits_for_its_folder_leaves_the_modes_of_other_files_alone(tmp_path: Path) -> None:
    made: list[Listener] = []
    folder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    # Given one that cannot go on
    waiting = threading.Thread(target=lambda: made.append(Listener(str(tmp_path / "s"))))
    waiting.start()
    try:
        wait_until(lambda: _opened(tmp_path) == 2, "it has got as far as the folder")
        # When another thread makes a folder, then it has the mode that it was given
        (tmp_path / "made").mkdir(0o700)
        assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o700
    finally:
        os.close(folder)
        waiting.join(30)
        made[0].close()


@pytest.mark.parametrize("above", [False, True])
def test_a_folder_where_another_user_could_exchange_the_socket_is_refused(tmp_path: Path, above: bool) -> None:
    folder = tmp_path / "above" / "here"
    folder.mkdir(parents=True)
    bad = folder.parent if above else folder
    bad.chmod(0o777)
    with pytest.raises(PermissionError, match=f"{bad} is refused: its mode 0777 .*; run: chmod go-w {bad}$"):
        Listener(str(folder / "s"))
    assert os.listdir(folder) == []
    # As /tmp, where only its owner can replace a file
    bad.chmod(0o1777)
    Listener(str(folder / "s")).close()


@needs_root
def test_a_client_sends_nothing_to_a_coordinator_of_another_user(tmp_path: Path) -> None:
    with ForeignServer(tmp_path / "s", "SOCK_SEQPACKET", own=False) as server:
        with pytest.raises(CoordinatorLost, match="belongs to another user: choose another socket"):
            connect_socket(tmp_path / "s")
        assert server.received() == 0


def test_a_path_where_somebody_listens_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    first = Listener(path)
    with pytest.raises(OSError, match="in use"):
        Listener(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(path)
    first.close()


def test_a_socket_without_a_listener_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left_behind:
        left_behind.bind(path)
    Listener(path).close()
    assert not os.path.exists(path)


@pytest.mark.parametrize("kind", ["file", "folder", "link", "stream socket"])
def test_what_is_no_socket_of_ours_is_never_removed(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "precious"
    (tmp_path / "target").write_text("content")
    other = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if kind == "file":
        path.write_text("content")
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(tmp_path / "target")
    else:
        other.bind(str(path))
        other.listen()
    before = os.lstat(path)
    with pytest.raises(OSError, match="in use"):
        Listener(str(path))
    assert os.lstat(path) == before
    assert (tmp_path / "target").read_text() == "content"
    other.close()


def test_a_path_that_has_become_anothers_stays(tmp_path: Path) -> None:
    path = tmp_path / "s"
    first = Listener(str(path))
    path.unlink()
    second = Listener(str(path))
    first.close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(path))
    second.close()
    assert not path.exists()


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Listener(str(tmp_path / "none" / "s"))


def test_of_many_that_start_at_once_over_a_stale_socket_one_listens(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    for _ in range(20):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left_behind:
            left_behind.bind(path)
        made: list[Listener] = []
        barrier = threading.Barrier(4)

        def start(barrier: threading.Barrier = barrier, made: list[Listener] = made) -> None:
            barrier.wait(10)
            try:
                made.append(Listener(path))
            except OSError:
                pass  # another has been quicker

        threads = [threading.Thread(target=start) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert len(made) == 1
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(path)
        made[0].close()
