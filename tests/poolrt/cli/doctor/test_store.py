"""The cache's findings: folder, key, embedded server, other server. A check makes and starts nothing."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis

from poolrt.cachestore.redis.embedded import EmbeddedServer
from poolrt.cachestore.signing import load_key
from poolrt.cli.doctor.finding import Finding, State
from poolrt.cli.doctor.store import findings
from poolrt.settings import Settings
from tests.cachestore.redis.full_disk import REFUSAL, full_disk


def _found(settings: Settings) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings(settings)}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings with a home folder that is not there yet."""
    return Settings(home=str(tmp_path / "home"))


def test_an_empty_machine_is_healthy_and_the_checks_make_nothing(settings: Settings, tmp_path: Path) -> None:
    found = _found(settings)
    assert {finding.state for finding in found.values()} == {State.OK}
    assert "not there yet" in found["cache folder"].seen
    assert "made on first use" in found["signing key"].seen
    assert "not running" in found["embedded redis"].seen
    assert list(tmp_path.iterdir()) == []


def test_the_begin_of_a_keys_names_in_redis_is_shown(settings: Settings) -> None:
    (home := Path(settings.home)).mkdir()
    fingerprint = load_key(str(home / "signing.key"), make=True).fingerprint
    assert f"names in Redis begin with poolrt:{{default}}:{fingerprint}" in _found(settings)["signing key"].seen


def test_the_findings_of_a_reader_name_what_it_does_not_make(settings: Settings, tmp_path: Path) -> None:
    found = _found(replace(settings, read_only=True))
    assert "read-only" in found["cache"].seen
    assert found["signing key"].state is State.FAIL
    assert "makes none" in found["signing key"].seen
    assert found["embedded redis"].state is State.WARN
    assert "starts none" in found["embedded redis"].seen
    assert list(tmp_path.iterdir()) == []


def test_a_running_embedded_server_is_seen(settings: Settings) -> None:
    server = EmbeddedServer(os.path.join(settings.home, "redis"))
    server.ensure()
    try:
        finding = _found(settings)["embedded redis"]
    finally:
        server.down()
    assert finding.state is State.OK
    assert finding.seen == f"running on {server.socket_path}"


def test_a_full_disk_is_a_warning(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=1, f_frsize=4096))
    with full_disk(EmbeddedServer(os.path.join(settings.home, "redis"))):
        found = _found(settings)
    folder, server = found["cache folder"], found["embedded redis"]
    assert (folder.state, server.state) == (State.WARN, State.WARN)
    assert folder.seen == f"{settings.home}, 4.0 KiB free"
    assert server.seen == f"the server cannot write to {settings.home}/redis/data: {REFUSAL}"
    # But who writes nothing needs no room
    assert _found(replace(settings, read_only=True))["cache folder"].state is State.OK


def test_a_home_that_is_a_file_fails(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    assert _found(Settings(home=str(path)))["cache folder"].state is State.FAIL


def test_a_home_that_others_may_write_to_fails(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    finding = _found(Settings(home=str(tmp_path)))["cache folder"]
    assert finding.state is State.FAIL
    assert finding.advice == f"chmod go-w {tmp_path}"


@pytest.mark.parametrize(("content", "mode", "reason"), [(b"x" * 32, 0o644, "chmod 600"), (b"short", 0o600, "5")])
def test_a_key_file_that_the_store_would_refuse_fails(
    settings: Settings, tmp_path: Path, content: bytes, mode: int, reason: str
) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(mode)
    finding = _found(replace(settings, key_file=str(path)))["signing key"]
    assert finding.state is State.FAIL
    assert reason in finding.seen


def test_an_operators_key_file_that_is_missing_fails(settings: Settings, tmp_path: Path) -> None:
    finding = _found(replace(settings, key_file=str(tmp_path / "none")))["signing key"]
    assert finding.state is State.FAIL


def test_a_server_binary_that_is_none_fails(settings: Settings) -> None:
    finding = _found(replace(settings, redis_server="/no/such/server"))["redis binary"]
    assert finding.state is State.FAIL
    assert finding.seen == "/no/such/server is not a program"


def test_an_unreachable_redis_is_a_warning_without_its_password(settings: Settings) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"redis://user:secret@127.0.0.1:{taken.getsockname()[1]}/0"
        finding = _found(replace(settings, redis_url=url))["redis server"]
    assert finding.state is State.WARN
    assert "refused" in finding.seen
    assert "secret" not in finding.seen


def test_a_redis_that_accepts_and_never_answers_does_not_hang(settings: Settings) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        url = f"redis://127.0.0.1:{deaf.getsockname()[1]}/0"
        finding = _found(replace(settings, redis_url=url, io_timeout_s=0.1))["redis server"]
    assert finding.state is State.WARN


def test_a_redis_that_answers_is_timed(settings: Settings) -> None:
    server = EmbeddedServer(os.path.join(settings.home, "redis"))
    server.ensure()
    try:
        finding = _found(replace(settings, redis_url=server.url))["redis server"]
    finally:
        server.down()
    assert finding.state is State.OK
    assert "answers in" in finding.seen


def test_a_redis_that_may_evict_leases_or_books_is_a_warning(settings: Settings) -> None:
    server = EmbeddedServer(os.path.join(settings.home, "redis"))
    server.ensure()
    try:
        client = redis.Redis(unix_socket_path=server.socket_path)
        known = replace(settings, redis_url=server.url)
        for limit in (0, 1 << 30):
            client.config_set("maxmemory", limit)
            for policy in ("noeviction", "allkeys-lru", "allkeys-random", "volatile-lru", "volatile-ttl"):
                client.config_set("maxmemory-policy", policy)
                finding = _found(known)["redis eviction"]
                assert finding.seen.startswith(policy)
                if limit and policy != "noeviction":
                    assert finding.state is State.WARN
                    assert "at 1.0 GiB the server drops leases and books" in finding.seen
                    assert finding.advice.startswith("set maxmemory-policy to noeviction")
                else:
                    assert finding.state is State.OK
        client.acl_setuser("limited", enabled=True, nopass=True, commands=["+ping", "+hello", "+auth"], keys=["*"])
        finding = _found(replace(known, redis_url=f"{server.url}?username=limited&password=any"))["redis eviction"]
        assert finding.state is State.WARN
        assert "not known whether the server may drop leases" in finding.seen
        assert "+info" in finding.advice
        client.close()
    finally:
        server.down()


def test_a_namespace_that_the_store_reserves_fails(settings: Settings) -> None:
    finding = _found(replace(settings, namespace="redis"))["cache"]
    assert finding.state is State.FAIL


def test_a_cache_that_is_turned_off_is_a_warning(settings: Settings) -> None:
    assert _found(replace(settings, capacity=0))["cache"].state is State.WARN
