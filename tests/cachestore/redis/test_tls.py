"""A Redis behind TLS and a password, named by URL: which clients are admitted or refused, and at what cost."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from poolrt.cachestore import Key, StoreUnavailable

from ...drills.ports import Port
from ..certificates import Authority
from ..conftest import StoreMaker
from ..secure_server import PASSWORD, SecureServer
from ..server import RedisServer

KEY = Key({"primitive": "test"})
#: Bound, in seconds, on being refused.
REFUSED_S = 2.0
MakeServer = Callable[..., SecureServer]


@pytest.fixture
def make_server() -> Iterator[MakeServer]:
    """Return a maker of servers."""
    folder = Path(tempfile.mkdtemp(prefix="poolrt-test-"))
    made: list[SecureServer] = []

    def make(**more: object) -> SecureServer:
        made.append(SecureServer(folder / str(len(made)), **more))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for server in made:
        server.kill()
    shutil.rmtree(folder)


def refused(make_store: StoreMaker, url: str) -> str:
    """Return why a store does not get in; it goes on without, in bounded time."""
    begin = time.monotonic()
    with make_store(url=url) as store:
        with pytest.raises(StoreUnavailable) as caught:
            store.ping()
        assert store.get_or_create(KEY, lambda: b"made here") == b"made here"
        assert store.stats()["degraded"] > 0
    assert time.monotonic() - begin < REFUSED_S
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


def test_a_store_shares_entries_over_tls(make_store: StoreMaker, make_server: MakeServer, tmp_path: Path) -> None:
    url = make_server().address()
    with make_store(url=url) as store:
        store.ping()
        assert store.fetch_or_create(KEY, lambda: b"x" * 300_000).source == "created"
    other = make_store(url=url, home=str(tmp_path / "other"), key_file=f"{store.options.home}/signing.key")
    assert other.fetch_or_create(KEY, bytes).source == "redis"
    assert other.get(KEY) == b"x" * 300_000
    assert other.stats()["degraded"] == 0


def test_a_server_that_we_have_no_reason_to_trust_is_refused(
    make_store: StoreMaker, make_server: MakeServer, tmp_path: Path
) -> None:
    server = make_server()
    assert "certificate verify failed" in refused(make_store, server.address(ssl_ca_certs=None))
    stranger = Authority(tmp_path, "stranger").certificate
    assert "certificate verify failed" in refused(make_store, server.address(ssl_ca_certs=stranger))


def test_a_certificate_for_another_host_is_refused(make_store: StoreMaker, make_server: MakeServer) -> None:
    server = make_server(alternative="DNS:redis.example")
    assert "IP address mismatch" in refused(make_store, server.address())


def test_a_server_can_want_a_certificate_of_its_clients(make_store: StoreMaker, make_server: MakeServer) -> None:
    server = make_server(mutual=True)
    certificate, key = server.authority.issue("client", "DNS:client")
    with make_store(url=server.address(ssl_certfile=certificate, ssl_keyfile=key)) as store:
        store.ping()
    refused(make_store, server.address())


def test_plain_and_tls_do_not_mix_and_do_not_hang(
    make_store: StoreMaker, make_server: MakeServer, tmp_path: Path
) -> None:
    server = make_server()
    refused(make_store, f"redis://127.0.0.1:{server.port}/0")
    plain = Port()
    with server.client() as client:
        client.config_set("port", plain.number)
    refused(make_store, server.address().replace(f":{server.port}", f":{plain.number}"))


def test_a_user_gets_in_by_name_and_password(make_store: StoreMaker, make_server: MakeServer, namespace: str) -> None:
    server = make_server()
    with make_store(url=server.address_of_user(namespace)) as store:
        store.ping()
        assert store.fetch_or_create(KEY, lambda: b"x").source == "created"
        assert store.stats()["degraded"] == 0
        name = store.status().url
    assert f"user-of-{namespace}:***@127.0.0.1:{server.port}" in name
    assert PASSWORD not in name


def test_a_wrong_password_or_name_is_refused_without_telling_it(
    make_store: StoreMaker, make_server: MakeServer, namespace: str
) -> None:
    server = make_server()
    server.address_of_user(namespace)
    assert "invalid username-password pair" in refused(make_store, server.address(f"user-of-{namespace}", "wrong"))
    assert "invalid username-password pair" in refused(make_store, server.address("nobody", PASSWORD))
    with server.client() as client:
        client.config_set("requirepass", "for the default user")
    assert "Authentication required" in refused(make_store, server.address())


def test_a_password_for_the_default_user_is_enough(make_store: StoreMaker, own_server: RedisServer) -> None:
    with own_server.client() as client:
        client.config_set("requirepass", PASSWORD)
    assert "Authentication required" in refused(make_store, own_server.url)
    with make_store(url=f"{own_server.url}?password=wrong") as store, pytest.raises(StoreUnavailable, match="invalid"):
        store.ping()
    from urllib.parse import quote

    with make_store(url=f"{own_server.url}?password={quote(PASSWORD, safe='')}") as store:
        store.ping()
        assert store.status().url == f"{own_server.url}?password=***"
