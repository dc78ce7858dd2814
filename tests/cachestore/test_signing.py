"""The signing key's file: made once, private, and refused when it is not."""

from __future__ import annotations

import hmac
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from poolrt.cachestore import CacheStore, Key, KeyFileRefused
from poolrt.cachestore.errors import NothingKept
from poolrt.cachestore.signing import SigningKey, load_key

#: A key with enough variety.
GOOD = b"c47a1e9f03b8d2656d0bf518e29a7c43"

LOADER = """
import sys
from poolrt.cachestore.signing import load_key
print("ready", flush=True)
sys.stdin.readline()
print(load_key(sys.argv[1], make=True).id.hex())
"""


def test_processes_that_start_at_once_agree_on_one_key(tmp_path: Path) -> None:
    path = tmp_path / "new" / "signing.key"
    command = [sys.executable, "-c", LOADER, str(path)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    ids = {process.communicate("\n", timeout=30)[0] for process in processes}
    assert len(ids) == 1
    assert ids.pop().strip() == load_key(str(path), make=False).id.hex()
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o620, 0o666])
def test_a_file_open_to_others_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    path.write_bytes(GOOD)
    path.chmod(mode)
    with pytest.raises(KeyFileRefused, match="chmod 600"):
        load_key(str(path), make=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(GOOD)
    path.chmod(0o600)
    os.chown(path, 12345, -1)
    with pytest.raises(KeyFileRefused, match="belongs to user 12345"):
        load_key(str(path), make=True)


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 5000])
def test_a_file_that_holds_no_usable_key_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(KeyFileRefused, match="bytes"):
        load_key(str(path), make=True)


def test_a_folder_is_not_a_key(tmp_path: Path) -> None:
    with pytest.raises(KeyFileRefused, match="regular file"):
        load_key(str(tmp_path), make=True)


@pytest.mark.parametrize("kind", ["link", "link to nothing", "pipe", "device", "socket"])
def test_what_is_not_a_plain_file_is_refused_without_a_wait(tmp_path: Path, kind: str) -> None:
    path, good = tmp_path / "key", tmp_path / "good"
    good.write_bytes(GOOD)
    good.chmod(0o600)
    if kind.startswith("link"):
        path.symlink_to(good if kind == "link" else tmp_path / "none")
    elif kind == "pipe":
        os.mkfifo(path, 0o600)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(path))
    elif os.geteuid() != 0:
        pytest.skip("only root can make devices")
    else:
        try:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("devices cannot be made here")
    # In Linux a socket is no device or address that can be opened
    reason = {"link": "symbolic link", "link to nothing": "symbolic link", "socket": "No such device or address"}.get(
        kind, "regular file"
    )
    with pytest.raises(KeyFileRefused, match=reason):
        load_key(str(path), make=True)


@pytest.mark.parametrize(
    "content",
    [
        b"x" * 32,
        b"00000000-00000000-00000000-00000000",
        b"0123456789abcdef0123456789abcdef",
        b"abcdefghijklmnopqrstuvwxyz",
        bytes(range(32)),
        bytes(range(254, 0, -2)),
        b"passwordpassword",
        b"change me please change me please ",
        GOOD[:8] * 4,
    ],
    ids=lambda content: content[:18],
)
def test_a_key_that_could_be_guessed_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(KeyFileRefused, match=r"could be guessed.* write 64 random hexadecimal digits"):
        load_key(str(path), make=True)


def test_random_keys_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "key"
    for number in range(200):
        path.write_bytes(os.urandom(24) if number % 2 else os.urandom(16).hex().encode())
        path.chmod(0o600)
        load_key(str(path), make=False)


def test_the_name_of_a_key_in_redis_is_neither_its_id_nor_a_signature_of_anything_else() -> None:
    key = SigningKey(GOOD)
    assert key.fingerprint == hmac.new(GOOD, b"poolrt key fingerprint\0", "sha256").hexdigest()[:16]
    assert key.fingerprint not in (key.id.hex(), key.derive(b"").fingerprint)


def test_a_missing_file_is_refused_unless_it_may_be_made(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with pytest.raises(KeyFileRefused, match="no such file"):
        load_key(str(path), make=False)
    assert not path.exists()


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_one_line_end_does_not_belong_to_the_key(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(GOOD + end)
    path.chmod(0o400)
    assert load_key(str(path), make=False).id == SigningKey(GOOD).id


def test_a_key_does_not_show_itself() -> None:
    assert "secret" not in repr(SigningKey(b"secret" * 6))


def test_without_a_file_for_the_key_a_store_works_and_keeps_nothing(tmp_path: Path) -> None:
    # Given a home folder in which nothing can be made
    (tmp_path / "home").write_text("a file")
    options = {"home": str(tmp_path / "home"), "redis_server": "/nonexistent"}
    key = Key({"name": "x"})
    with CacheStore.connect(**options) as store:
        # When something is created, then it is there for this store, with one warning
        with pytest.warns(NothingKept, match=r"it cannot be made: Not a directory; nothing that is created is kept"):
            assert store.get_or_create(key, lambda: b"value") == b"value"
        assert store.get_or_create(key, pytest.fail) == b"value"
        assert store.keeps_nothing()
    # And for no other
    with CacheStore.connect(**options) as store, pytest.warns(NothingKept):
        assert store.get_or_create(key, lambda: b"another") == b"another"


def test_a_named_key_file_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file" / "key"
    path.parent.write_text("a file")
    with CacheStore.connect(home=str(tmp_path / "home"), key_file=str(path), redis_server="/nonexistent") as store:
        with pytest.raises(KeyFileRefused, match="it cannot be made"):
            store.get_or_create(Key({"name": "x"}), lambda: b"value")
        assert not store.keeps_nothing()
