"""Folders that another user can change or replace are refused at use, with the command that mends it."""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore import CacheStore, Key, KeyFileRefused, PathRefused, StoreUnavailable
from poolrt.cachestore.ownership import check_folder
from poolrt.cachestore.redis.breaker import CircuitBreaker
from poolrt.cachestore.redis.connection import RedisConnection
from poolrt.cachestore.redis.embedded import EmbeddedServer
from poolrt.cachestore.redis.replies import unused

from ..other_user import OTHER, ForeignServer, needs_root, run_as_other
from .conftest import StoreMaker
from .names import write_key

KEY = Key({"primitive": "test", "n": 1})

Calls = Callable[[CacheStore], object]
CALLS: dict[str, Calls] = {
    "get": lambda store: store.get(KEY),
    "get_many": lambda store: store.get_many([KEY]),
    "get_or_create": lambda store: store.get_or_create(KEY, lambda: b"x"),
    "stats": lambda store: store.stats(),
    "clear": lambda store: store.clear(),
    "export": lambda store: store.export("/nowhere"),
    "ping": lambda store: store.ping(),
}


@pytest.fixture
def filled(make_store: StoreMaker, home: Path) -> Path:
    """Return a home folder that was used, with all that belongs to it, below a folder of its own."""
    with make_store() as store:
        store.get_or_create(KEY, lambda: b"good")
    (home / "redis").mkdir(mode=0o700)
    return home


def mend(error: PathRefused | KeyFileRefused) -> None:
    """Run the command that the error names."""
    command = str(error).rpartition("run: ")[2]
    subprocess.run(shlex.split(command), check=True, timeout=60)


def snapshot(folder: Path) -> list[tuple[str, bytes]]:
    """Return all files with their content."""
    return sorted((str(path), path.read_bytes()) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("mode", "call"), [*((mode, "get") for mode in (0o775, 0o702, 0o770, 0o1777)), *((0o777, call) for call in CALLS)]
)
def test_a_home_that_others_can_write_to_is_refused_and_left_alone(
    make_store: StoreMaker, filled: Path, mode: int, call: str
) -> None:
    before = snapshot(filled)
    filled.chmod(mode)
    store = make_store()
    with pytest.raises(PathRefused, match=f"its mode {mode:04o} lets group or others write to it") as caught:
        CALLS[call](store)
    assert caught.value.path == str(filled)
    assert "\n" not in str(caught.value)
    assert snapshot(filled) == before
    mend(caught.value)
    assert store.get(KEY) == b"good"


def test_nothing_is_made_in_a_home_that_is_refused(make_store: StoreMaker, home: Path) -> None:
    home.mkdir()
    home.chmod(0o777)
    with pytest.raises(PathRefused, match="chmod go-w"):
        make_store(url=None).get_or_create(KEY, lambda: b"x")
    assert os.listdir(home) == []
    home.chmod(0o755)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("which", ["namespace", "redis", "parent"])
def test_each_folder_on_the_way_is_looked_at(
    make_store: StoreMaker, filled: Path, namespace: str, which: str, read_only: bool
) -> None:
    folder = {"namespace": filled / namespace, "redis": filled / "redis", "parent": filled.parent}[which]
    folder.chmod(0o777)
    more: dict[str, Any] = {"read_only": read_only, **({"url": None} if which == "redis" else {})}
    store = make_store(**more)
    with pytest.raises(PathRefused, match="chmod go-w") as caught:
        store.get(KEY)
    assert caught.value.path == str(folder)
    mend(caught.value)
    assert store.get(KEY) == b"good"


def test_a_folder_like_tmp_may_be_on_the_way(make_store: StoreMaker, filled: Path) -> None:
    filled.parent.chmod(0o1777)
    assert make_store().get(KEY) == b"good"


def test_a_home_may_be_a_link_to_a_good_folder(make_store: StoreMaker, filled: Path) -> None:
    link = filled.parent / "link"
    link.symlink_to("home")
    assert make_store(home=str(link)).get(KEY) == b"good"
    filled.chmod(0o777)
    with pytest.raises(PathRefused, match="chmod go-w") as caught:
        make_store(home=str(link)).get(KEY)
    assert caught.value.path == str(filled)
    mend(caught.value)


def test_a_link_leads_through_folders_that_are_looked_at_too(tmp_path: Path) -> None:
    (tmp_path / "open" / "good").mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    for target in ("open/good", str(tmp_path / "open" / "good"), "./open/../open//good"):
        link = tmp_path / "link"
        link.symlink_to(target)
        with pytest.raises(PathRefused, match=f"and so replace {link}; run: chmod go-w {tmp_path}/open$"):
            check_folder(str(link))
        link.unlink()


def test_a_path_that_leads_nowhere_is_not_refused(tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to("round")
    (tmp_path / "file").touch()
    for name in ("none", "none/below", "round", "round/below", "file/below"):
        check_folder(str(tmp_path / name))


@needs_root
@pytest.mark.parametrize("which", ["home", "namespace", "redis", "parent", "entries", "state", "link"])
def test_what_belongs_to_another_user_is_refused(
    make_store: StoreMaker, filled: Path, namespace: str, which: str
) -> None:
    link = filled.parent / "link"
    link.symlink_to("home")
    place = {
        "home": filled,
        "namespace": filled / namespace,
        "redis": filled / "redis",
        "parent": filled.parent,
        "entries": filled / namespace / "entries",
        "state": filled / namespace / "state",
        "link": link,
    }[which]
    os.chown(place, OTHER, OTHER, follow_symlinks=False)
    home = str(link) if which == "link" else str(filled)
    more: dict[str, Any] = {"url": None} if which == "redis" else {}
    with pytest.raises(PathRefused, match=f"it belongs to user {OTHER}, not to root") as caught:
        make_store(home=home, **more).get(KEY)
    assert caught.value.path == str(place)
    if which == "parent":
        # No command that takes a user's home away
        assert "chown" not in str(caught.value)
        os.chown(place, 0, 0)
    elif which == "link":
        link.unlink()
    else:
        mend(caught.value)
    assert make_store().get(KEY) == b"good"


@pytest.mark.parametrize("where", ["folder", "parent"])
def test_a_key_in_a_folder_that_others_can_write_to_is_refused(
    make_store: StoreMaker, tmp_path: Path, where: str
) -> None:
    folder = tmp_path / "above" / "keys"
    folder.mkdir(parents=True)
    key_file = write_key(folder / "key")
    bad = {"folder": folder, "parent": folder.parent}[where]
    bad.chmod(0o777)
    store = make_store(key_file=key_file)
    with pytest.raises(KeyFileRefused, match=f"its folder {bad} is refused: its mode 0777") as caught:
        store.get_or_create(KEY, lambda: b"x")
    mend(caught.value)
    bad.chmod(0o1777)
    assert store.get_or_create(KEY, lambda: b"x") == b"x"


@needs_root
def test_a_user_with_a_file_of_known_content_cannot_have_root_accept_its_entries(make_store: StoreMaker) -> None:
    with tempfile.TemporaryDirectory(prefix="poolrt-test-", dir="/tmp") as name:
        # Given a world-writable home where the user exchanges root's key for a link
        place = Path(name)
        place.chmod(0o755)
        home = place / "home"
        make_store(home=str(home)).get_or_create(KEY, lambda: b"good")
        known = place / "known"
        write_key(known)
        home.chmod(0o777)
        run_as_other(
            "home, known = sys.argv[1:]; drop(); os.rename(home + '/signing.key', home + '/old'); "
            "os.symlink(known, home + '/signing.key')",
            str(home),
            str(known),
        )
        # Then root refuses the home, and, once that is mended, the link
        store = make_store(home=str(home))
        with pytest.raises(PathRefused, match="chmod go-w") as caught:
            store.get(KEY)
        mend(caught.value)
        with pytest.raises(KeyFileRefused, match="it is a symbolic link"):
            store.get(KEY)


@needs_root
@pytest.mark.parametrize("mode", [0o770, 0o777], ids=oct)
def test_a_users_own_group_may_write_on_the_way_but_not_to_the_home(mode: int) -> None:
    groups = {group.gr_gid: group for group in grp.getgrall()}
    own = [
        user
        for user in pwd.getpwall()
        if user.pw_uid and (group := groups.get(user.pw_gid)) and (group.gr_name, group.gr_mem) == (user.pw_name, [])
    ]
    if not own:
        pytest.skip("no account here has a group of its own")
    user, member = own[0], own[-1]
    with tempfile.TemporaryDirectory(prefix="poolrt-test-", dir="/tmp") as name:
        above = Path(name) / "above"
        home = above / "home"
        home.mkdir(parents=True)
        for place in (Path(name), above, home):
            os.chown(place, user.pw_uid, user.pw_gid)
        above.chmod(mode)

        def check(path: Path) -> str:
            return run_as_other(
                "from poolrt.cachestore.ownership import check_folder; import grp, pwd; user, group, path = sys.argv[1:]\n"
                "drop(int(user), int(group))\n"
                "try:\n    check_folder(path)\n    print('passed')\n"
                "except Exception as error:\n    print(error)",
                *map(str, (user.pw_uid, user.pw_gid, path)),
            )

        assert ("passed" if mode == 0o770 else f"run: chmod go-w {above}") in check(home)
        assert "run: chmod go-w" in check(above)
        # Nor may a group of others, were it the group of another account
        os.chown(above, user.pw_uid, member.pw_gid if member is not user else 0)
        assert f"run: chmod go-w {above}" in check(home)


#: Makes the user root of a new namespace in which the machine's root has no number.
_NAMESPACE = """
from poolrt.cachestore.ownership import check_folder
import ctypes
path = sys.argv[1]
drop()
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWUSER, PR_SET_DUMPABLE = 0x10000000, 4
try:
    # A process that has changed its user does not own its files in /proc otherwise.
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    if libc.unshare(CLONE_NEWUSER):
        raise OSError(ctypes.get_errno(), "no user namespaces")
    with open("/proc/self/uid_map", "w") as file:
        file.write("0 {} 1")
except OSError as error:
    print("skip:", error)
    sys.exit()
assert os.stat("/").st_uid != 0
try:
    check_folder(path)
    print("passed")
except Exception as error:
    print(error)
"""


@needs_root
def test_in_a_user_namespace_without_root_the_folders_on_the_way_may_be_roots_but_not_the_home() -> None:
    with tempfile.TemporaryDirectory(prefix="poolrt-test-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        home = Path(name) / "home"
        home.mkdir()
        code = _NAMESPACE.replace("{}", str(OTHER))
        said = run_as_other(code, str(home))
        if said.startswith("skip"):
            pytest.skip(f"no user namespace can be made here: {said}")
        assert f"{home} is refused: it belongs to user " in said
        os.chown(home, OTHER, OTHER)
        assert run_as_other(code, str(home)) == "passed\n"


@needs_root
def test_a_folder_on_the_way_of_the_user_without_rights_is_refused(tmp_path: Path) -> None:
    if Path("/proc/self/uid_map").read_text().split()[1:2] != ["0"]:
        pytest.skip("the machine's root has no number in this container")
    overflow = int(Path("/proc/sys/kernel/overflowuid").read_text())
    os.chown(tmp_path, overflow, -1)
    with pytest.raises(PathRefused, match=f"it belongs to user {overflow}"):
        check_folder(str(tmp_path / "home"))
    os.chown(tmp_path, 0, -1)


def test_folders_are_looked_at_once_in_a_process(make_store: StoreMaker, filled: Path) -> None:
    store = make_store(memory_bytes=0)
    looks: list[str] = []
    lstat = os.lstat

    def look(path: str) -> os.stat_result:
        looks.append(path)
        return lstat(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "lstat", look)
        store.get(KEY)
        first = len(looks)
        for _ in range(10):
            store.get(KEY)
    # The way from / to the home, once for the key, and the namespace's folder
    assert first <= 2 * len(filled.parts) + 1
    assert len(looks) == first


@needs_root
def test_nothing_is_sent_to_another_users_server_in_the_place_of_ours(make_store: StoreMaker, tmp_path: Path) -> None:
    # Given a home whose server's socket is elsewhere, since its path is too long for one, and a server there
    home = str(tmp_path / ("name" * 40))
    path = EmbeddedServer(f"{home}/redis").socket_path
    assert path.startswith("/tmp/")
    with ForeignServer(path) as server:
        store = make_store(url=None, home=home)
        # When a store needs its own, then it goes on without, and says why
        assert store.fetch_or_create(KEY, lambda: b"x" * 100_000).source == "created"
        with pytest.raises(StoreUnavailable, match=f"{os.path.dirname(path)} is refused: it belongs to user {OTHER}"):
            store.ping()
        store.close()
        assert server.received() == 0


@needs_root
def test_nothing_is_sent_to_another_users_server_behind_a_socket_of_ours(tmp_path: Path) -> None:
    folder = tmp_path / "redis"
    folder.mkdir(mode=0o700)
    embedded = EmbeddedServer(str(folder))
    with ForeignServer(embedded.socket_path, own=False) as server:
        assert not embedded.is_running()
        connection = RedisConnection(embedded.url, "embedded", 0.5, CircuitBreaker(), own_server=True)
        with pytest.raises(StoreUnavailable, match=f"belongs to user {OTHER}, not to user 0: nothing was sent"):
            connection.command(unused, "PING")
        with pytest.raises(StoreUnavailable, match="nothing was sent"):
            connection.values(("HMGET", "a", "b"), ["c"])
        connection.close()
        assert server.received() == 0
