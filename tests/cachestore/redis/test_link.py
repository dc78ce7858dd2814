"""The link to Redis: what it does without a server at the place that the URL names."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolrt.cachestore import Key, StoreUnavailable
from poolrt.cachestore.redis.address import socket_path
from tests.cachestore.conftest import StoreMaker
from tests.cachestore.server import RedisServer
from tests.workers.own_process import python

_PROGRAM = """
import sys
from poolrt.cachestore import CacheStore, Key
with CacheStore.connect({url!r}, home={home!r}) as store:
    print(store.get_or_create(Key({{"number": 1}}), lambda: b"x"), store.status().reason, "redis" in sys.modules, sep=";")
"""


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("unix:///run/redis.sock", "/run/redis.sock"),
        ("unix://user:secret@/run/a%20b.sock?db=1&password=secret", "/run/a b.sock"),
        ("unix://", None),
        ("redis://host:6379/0", None),
        ("rediss://host/run", None),
    ],
)
def test_the_path_of_a_socket_is_the_clients(url: str, path: str | None) -> None:
    assert socket_path(url) == path


def test_a_process_does_not_import_the_client_where_no_server_listens(tmp_path: Path) -> None:
    url, home = f"unix://{tmp_path}/none.sock", str(tmp_path / "home")
    answer = f"cannot connect to {tmp_path}/none.sock: No such file or directory"
    assert python(_PROGRAM.format(url=url, home=home)).strip() == f"b'x';{answer};False"


def test_the_socket_of_a_server_that_was_killed_is_refused_until_there_is_another(
    own_server: RedisServer, make_store: StoreMaker
) -> None:
    own_server.kill()
    store = make_store(url=own_server.url)
    with pytest.raises(StoreUnavailable, match="Connection refused"):
        store.ping()
    assert store.get_or_create(Key({"number": 1}), lambda: b"x") == b"x"
    own_server.start()
    store.ping()
    assert store.status().reachable
