"""The rights that a store needs in Redis: enough for all that it does, and for nothing else."""

from __future__ import annotations

import hashlib
import re
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError
from redis.retry import Retry

from poolrt.cachestore import CacheStore, CreationFailed, CreationTimeout, Key, StoreUnavailable
from poolrt.cachestore.redis import scripts
from poolrt.cachestore.redis.schema import Schema

from ..conftest import StoreMaker
from ..names import schema_of
from ..server import RedisServer
from ..server_programs import VERSIONS, program_of

ROOT: Final = Path(__file__).resolve().parents[3]
FILE: Final = ROOT / "configs" / "redis-acl.conf"
NAMESPACE: Final = "production"
NO_PASSWORD: Final = f"#{'0' * 64}"
KEYS: Final = [Key({"primitive": "test", "n": number}) for number in range(6)]
#: What the server always grants: it is how one gets in and out.
ALWAYS: Final = {"auth", "hello", "quit", "reset"}
#: A server's refusals; 7.0 denies DEBUG and MODULE to every user.
DENIED: Final = "no permissions|NOPERM|(DEBUG|MODULE) command not allowed"


class GuardedServer(RedisServer):
    """A server with the users of the file, and one for the tests."""

    def __init__(self, folder: Path, program: str | None) -> None:
        folder.mkdir(exist_ok=True)
        users = folder / "users.conf"
        text = FILE.read_text()
        for name in ("poolrt", "poolrt-reader"):
            password = hashlib.sha256(f"password of {name}".encode()).hexdigest()
            text = text.replace(f"user {name} on {NO_PASSWORD}", f"user {name} on #{password}")
        users.write_text(f"{text}\nuser tester on nopass ~* &* +@all\n")
        super().__init__(folder, "--include", str(users), program=program)

    def client(self, user: str = "tester", password: str = "any") -> Any:
        """Return a plain client."""
        return redis.Redis(unix_socket_path=str(self._socket), username=user, password=password, socket_timeout=5.0)

    def client_of(self, user: str) -> Any:
        """Return a plain client of one of the file's users."""
        return self.client(user, f"password of {user}")

    def url_of(self, user: str) -> str:
        """Return the URL of one of the file's users."""
        return f"unix://{self._socket}?username={user}&password=password%20of%20{user}"


@pytest.fixture(scope="module", params=VERSIONS)
def guarded(request: pytest.FixtureRequest, server_program: str) -> Iterator[GuardedServer]:
    """Return a server of each version that is here."""
    with tempfile.TemporaryDirectory(prefix="poolrt-test-") as name:
        folder = Path(name)
        server = GuardedServer(folder, program_of(request.param, folder))
        yield server
        server.kill()


@pytest.fixture
def make(make_store: StoreMaker, guarded: GuardedServer) -> Iterator[StoreMaker]:
    """Return a maker of stores of the file's users."""
    yield lambda user="poolrt", **more: make_store(
        **{"url": guarded.url_of(user), "namespace": NAMESPACE, "lease_s": 0.3, **more}
    )
    with guarded.client() as client:
        client.flushall()


def rules() -> dict[str, str]:
    """Return what the file says, by user."""
    lines = [line for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
    found = {}
    for line in lines:
        word, name, rule = line.split(" ", 2)
        assert word == "user"
        found[name] = rule
    return found


def test_the_file_has_the_rules_of_the_code_and_admits_no_user_until_a_password_is_set() -> None:
    schema = Schema(NAMESPACE)
    assert rules() == {
        "default": "off",
        "poolrt": f"on {NO_PASSWORD} {schema.acl_rule}",
        "poolrt-reader": f"on {NO_PASSWORD} {schema.read_only_acl_rule}",
    }


def test_the_rule_has_every_command_of_the_scripts() -> None:
    granted = set(re.findall(r"\+(\S+)", Schema(NAMESPACE).acl_rule))
    folder = Path(scripts.__file__).parent / "lua"
    called = {
        name.lower()
        for path in folder.glob("*.lua")
        for name in re.findall(r"redis\.p?call\('(\w+)'", path.read_text())
    }
    assert called
    assert called <= granted


def test_the_rule_has_no_command_that_nothing_sends() -> None:
    folder = Path(scripts.__file__).parent
    sources = " ".join(path.read_text() for path in [*folder.glob("*.py"), *folder.glob("lua/*.lua")])
    for command in set(re.findall(r"\+(\S+)", Schema(NAMESPACE).acl_rule)) - ALWAYS:
        assert re.search(rf"[\"']{command.replace('|', '[ ]')}[\"']", sources, re.IGNORECASE), command


def failing() -> bytes:
    """Fail."""
    raise ValueError("no")


def live(make: StoreMaker, tmp_path: Path) -> CacheStore:
    """Do everything that a store can do, and return it."""
    store = make()
    store.ping()
    for key in KEYS[:4]:
        store.get_or_create(key, lambda: b"x" * 1000)
    with pytest.raises(CreationFailed):
        store.get_or_create(KEYS[4], failing)
    key_file = f"{store.options.home}/signing.key"
    other = make(home=str(tmp_path / "other"), key_file=key_file)
    assert [other.fetch_or_create(key, bytes).source for key in KEYS[:4]] == ["redis"] * 4
    creating, waiting = threading.Event(), threading.Event()

    def create() -> bytes:
        creating.set()
        waiting.wait(5.0)
        return b"slow"

    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(store.get_or_create, KEYS[5], create)
        creating.wait(5.0)
        # It waits for longer than a term, so the lease is renewed.
        with pytest.raises(CreationTimeout):
            other.get_or_create(KEYS[5], bytes, timeout=0.5)
        waiting.set()
        assert other.get_or_create(KEYS[5], bytes, timeout=5.0) == slow.result(5.0) == b"slow"
    store.remove(KEYS[0])
    store.export(tmp_path / "a.bundle")
    make(home=str(tmp_path / "third"), key_file=key_file).import_(tmp_path / "a.bundle")
    assert store.verify().problems == ()
    assert len(store.entries()) == store.size
    store.set_capacity(2, 1 << 20)
    store.stats()
    return store


def test_a_store_can_do_all_that_it_does(make: StoreMaker, tmp_path: Path) -> None:
    store = live(make, tmp_path)
    assert store.stats()["degraded"] == 0
    assert (store.size, store.status().reachable) == (2, True)
    store.clear()
    assert store.size == 0
    assert store.stats()["degraded"] == 0


def test_a_full_server_is_no_matter_of_rights(make: StoreMaker, guarded: GuardedServer) -> None:
    with guarded.client() as client:
        client.config_set("maxmemory", "3mb")
        try:
            with make() as store:
                for number in range(40):
                    store.get_or_create(Key({"n": number}), lambda: b"x" * 200_000)
                assert store.status().reachable
        finally:
            client.config_set("maxmemory", "0")


def test_a_reader_can_read_and_no_more(make: StoreMaker, guarded: GuardedServer, tmp_path: Path) -> None:
    with make() as writer:
        writer.get_or_create(KEYS[0], lambda: b"x" * 1000)
        writer.stats()
    options = {"user": "poolrt-reader", "home": str(tmp_path / "r"), "key_file": f"{writer.options.home}/signing.key"}
    with make(**options, read_only=True) as reader:
        reader.ping()
        assert reader.fetch_or_create(KEYS[0], bytes).source == "redis"
        assert reader.fetch_or_create(KEYS[1], lambda: b"mine").source == "created"
        assert (reader.size, len(reader.entries()), reader.capacity) == (1, 1, 1024)
        assert reader.verify().problems == ()
        assert reader.export(tmp_path / "a.bundle").entries == 1
        assert reader.stats()["degraded"] == 0
    # A store that would write is no worse off than without Redis
    with make(**options) as careless:
        assert careless.fetch_or_create(KEYS[2], lambda: b"mine").source == "created"
        assert careless.stats()["degraded"] > 0
    with guarded.client() as client:
        assert client.exists(schema_of(writer).value(KEYS[0].digest)) == 1
        assert client.exists(schema_of(writer).value(KEYS[2].digest)) == 0


def test_no_client_is_admitted_without_a_name(guarded: GuardedServer, make_store: StoreMaker) -> None:
    with make_store(url=guarded.url, namespace=NAMESPACE) as store, pytest.raises(StoreUnavailable, match="uthentic"):
        store.ping()
    retry = Retry(NoBackoff(), 0)
    with (
        redis.Redis(unix_socket_path=str(guarded._socket), retry=retry) as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.get("anything")


def commands(server: GuardedServer) -> Iterator[tuple[list[str], int]]:
    """Yield every command of a server, as its words, with the number of words that it takes at least."""
    with server.client() as client:
        client.response_callbacks.clear()
        for entry in client.execute_command("COMMAND"):
            name, arity = entry[0].decode(), entry[1]
            parts = entry[9] if len(entry) > 9 else []
            for part in parts:
                yield part[0].decode().split("|"), abs(part[1])
            if not parts:
                yield [name], abs(arity)


@pytest.mark.parametrize("user", ["poolrt", "poolrt-reader"])
def test_everything_else_is_denied(guarded: GuardedServer, user: str) -> None:
    granted = set(re.findall(r"\+(\S+)", rules()[user]))
    looked = 0
    with guarded.client_of(user) as client:
        for words, arity in commands(guarded):
            name = "|".join(words).lower()
            if name in granted or name in ALWAYS:
                continue
            # Our own key as each argument, so the command is denied, not the key. Before 7.0, SCRIPT means all its subcommands.
            own = f"{Schema(NAMESPACE).prefix}:x"
            for extra in (["FLUSH"], ["KILL"], ["DEBUG"]) if name == "script" else ([],):
                with pytest.raises(redis.ResponseError, match=DENIED):
                    client.execute_command(*words, *extra, *[own] * max(0, arity - len(words) - len(extra)))
            looked += 1
    assert looked > 150


@pytest.mark.parametrize("user", ["poolrt", "poolrt-reader"])
def test_other_keys_are_denied(guarded: GuardedServer, user: str) -> None:
    other = Schema("another").value("a" * 64)
    with guarded.client_of(user) as client:
        for key in (other, "poolrt:{production", f"x{Schema(NAMESPACE).prefix}:v", "*"):
            with pytest.raises(NoPermissionError):
                client.get(key)
        for command in (["SET", other, "x"], ["HGET", other, "x"], ["ZRANGE", other, 0, -1]):
            with pytest.raises(NoPermissionError):
                client.execute_command(*command)


def test_a_script_has_no_more_rights_than_its_user(guarded: GuardedServer) -> None:
    other = Schema("another").value("a" * 64)
    with guarded.client() as admin, guarded.client_of("poolrt") as client:
        for body in (f"return redis.call('GET', '{other}')", "return redis.call('KEYS', '*')"):
            sha = admin.script_load(body)
            with pytest.raises(redis.ResponseError, match=r"can't (access|run)|(?i:no permissions)"):
                client.evalsha(sha, 0)
