"""The embedded server run by programs of several versions: its data come along when a system gets the newer one."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolrt.cachestore import Key
from poolrt.cachestore.redis.server_binary import find_server

from ..conftest import StoreMaker
from ..server_programs import program_of, version_of

KEY = Key({"primitive": "test"})


OTHERS = [
    pytest.param((which, "other"), marks=pytest.mark.slow, id=f"{which} other") for which in ("default", "valkey")
]


@pytest.fixture(params=[pytest.param(("default", "valkey"), id="default valkey"), *OTHERS])
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Return two programs, the older one first."""
    found = [program_of(which, tmp_path) or find_server(None) for which in request.param]
    return sorted(found, key=version_of)


def test_a_newer_program_takes_the_data_over(make_store: StoreMaker, programs: list[str], tmp_path: Path) -> None:
    options = {"url": None, "key_file": str(tmp_path / "key")}
    with make_store(**options, redis_server=programs[0]) as store:
        store.get_or_create(KEY, lambda: b"made under the older one")
        store.down()
    with make_store(**options, redis_server=programs[1]) as store:
        assert store.size == 1
        assert store.verify().problems == ()
        store.down()


def test_an_older_program_starts_where_a_newer_one_was(
    make_store: StoreMaker, programs: list[str], tmp_path: Path
) -> None:
    options = {"url": None, "key_file": str(tmp_path / "key")}
    with make_store(**options, redis_server=programs[1]) as store:
        store.get_or_create(KEY, lambda: b"x")
        store.down()
    # Given that it cannot read those data, then the entries in this node's files come to Redis as they are used
    with make_store(**options, redis_server=programs[0]) as store:
        store.ping()
        assert store.fetch_or_create(KEY, bytes).source == "files"
        store.stats()
        assert store.size == 1
        store.down()
