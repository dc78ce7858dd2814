"""URLs: what messages show of them, and where a cluster sends us."""

from __future__ import annotations

import pytest

from poolrt.cachestore.redis.address import moved, public_name


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://user:secret@host:6379/0", "redis://user:***@host:6379/0"),
        ("rediss://:secret@host", "rediss://:***@host"),
        ("redis://user:se%40cret@[::1]:6379", "redis://user:***@[::1]:6379"),
        ("unix:///run/redis.sock?password=secret&db=1", "unix:///run/redis.sock?password=***&db=1"),
        ("rediss://h?ssl_ca_certs=/a/ca.pem&ssl_password=secret", "rediss://h?ssl_ca_certs=/a/ca.pem&ssl_password=***"),
        ("unix://user@/run/redis.sock?password=secret", "unix://user@/run/redis.sock?password=***"),
    ],
)
def test_a_message_shows_no_password(url: str, shown: str) -> None:
    assert public_name(url) == shown
    assert "secret" not in public_name(url)


@pytest.mark.parametrize(
    ("url", "host", "port", "where"),
    [
        ("redis://a:1/0", "b", 2, "redis://b:2/0"),
        ("rediss://user:p@a:1/0?ssl_ca_certs=/ca", "b", 2, "rediss://user:p@b:2/0?ssl_ca_certs=/ca"),
        ("redis://a:1", "", 2, "redis://a:2"),
        ("redis://user:p@a", "::1", 2, "redis://user:p@[::1]:2"),
        ("redis://[::1]:1", "", 2, "redis://[::1]:2"),
        ("unix:///run/redis.sock", "b", 2, None),
    ],
)
def test_a_cluster_changes_the_address_and_nothing_else(url: str, host: str, port: int, where: str | None) -> None:
    assert moved(url, host, port) == where
