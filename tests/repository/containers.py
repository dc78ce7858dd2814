"""Containers without an engine: buildah builds and runs images in a folder of its own, on a base that debootstrap makes.

Isolation is `chroot`, which needs no runtime and no registry of images. Containers share the host's network and processes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

ROOT: Final = Path(__file__).resolve().parents[2]
#: Longest that one build, and one command in a container, may take, in seconds.
BUILD_S: Final = 900.0
RUN_S: Final = 120.0
_STOP_S: Final = 20.0
#: By this variable, whose value is the folder, and by their root, the processes of containers are found again.
_MARK: Final = "CONTAINERS_OF_TEST"


def why_impossible() -> str | None:
    """Return why no image can be built here, or None."""
    if os.geteuid():
        return "buildah's chroot isolation and debootstrap need root"
    for program in ("buildah", "debootstrap", "apt-get"):
        if shutil.which(program) is None:
            return f"{program} is missing"
    return None if debian_mirror() else "apt has no Debian mirror of this machine's release"


def debian_mirror() -> tuple[str, str] | None:
    """Return the release and the URL of the Debian mirror that this machine's apt reads, or None."""
    words = [
        "apt-get",
        "indextargets",
        "--format",
        "$(ORIGIN)|$(COMPONENT)|$(CODENAME)|$(REPO_URI)",
        "Created-By: Packages",
    ]
    listed = subprocess.run(words, capture_output=True, text=True, timeout=RUN_S, check=False).stdout
    release = Path("/etc/os-release").read_text(encoding="utf-8")
    name = re.search(r"^VERSION_CODENAME=(\w+)$", release, re.MULTILINE)
    for line in listed.splitlines():
        origin, component, codename, url = line.split("|")
        if name is not None and (origin, component, codename) == ("Debian", "main", name[1]):
            return codename, url
    return None


class Containers:
    """Images and containers in a temporary folder. Leaving the block ends their processes and removes everything."""

    def __init__(self) -> None:
        # Large, and the users of containers need a way to what is mounted from here: the folder of tests is its user's alone.
        self.folder = Path(tempfile.mkdtemp(prefix="poolrt-containers-", dir="/var/tmp"))
        self.folder.chmod(0o755)
        self._options: tuple[str, ...] = ()
        #: Container -> device and inode of its root.
        self._roots: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> Self:
        try:
            for driver in ("overlay", "vfs"):
                places = ("--root", str(self.folder / "images"), "--runroot", str(self.folder / "run"))
                self._options = (*places, "--storage-driver", driver)
                if self._try("info").returncode == 0:
                    return self
            raise RuntimeError("buildah works with neither overlay nor vfs")
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the containers' processes; remove containers, images, mounts and the folder."""
        self.end_processes()
        self._try("rm", "--all")
        self._try("rmi", "--all", "--force")
        for mount in reversed(_mounts_below(self.folder)):
            subprocess.run(["umount", "--lazy", mount], timeout=RUN_S, check=False)
        # A mount that has stayed would lead out of the folder.
        if not _mounts_below(self.folder):
            shutil.rmtree(self.folder)

    def make_base(self, name: str) -> None:
        """Make an image of this machine's Debian release, with Python and the certificates that pip uses here."""
        release, mirror = debian_mirror() or ("", "")
        container = self.buildah("from", "scratch")
        tree = Path(self.buildah("mount", container))
        wanted = "--include=python3,python3-venv,ca-certificates"
        _check(["debootstrap", "--variant=minbase", wanted, release, str(tree), mirror], BUILD_S)
        certificates = _pip_options().get("cert", "")
        if os.path.isfile(certificates):
            target = tree / certificates.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(certificates, target)
        shutil.rmtree(tree / "var/cache/apt/archives")
        self.buildah("umount", container)
        self.buildah("commit", "--rm", "--quiet", container, name)

    def build(self, dockerfile: Path, context: Path, tag: str, *more: str, **arguments: str) -> None:
        """Build an image; pip gets this machine's configuration as a secret, so no layer has it.

        ``more`` are further options, ``arguments`` the values of the file's ARGs.
        """
        configuration = self.folder / "pip.conf"
        lines = (f"{name} = {value}" for name, value in _pip_options().items())
        configuration.write_text("\n".join(["[global]", *lines, ""]), encoding="utf-8")
        given = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
        ignored = ("--ignorefile", str(dockerfile.with_name(f"{dockerfile.name}.dockerignore")))
        self.buildah(
            "bud", "--isolation", "chroot", "--format", "docker", "--layers=false", *given, *ignored, *more,
            "--secret", f"id=pip_conf,src={configuration}", "--file", str(dockerfile), "--tag", tag, str(context),
        )  # fmt: skip

    def create(self, image: str) -> str:
        """Return a new container, with its files mounted so that all its commands see the same ones."""
        container = self.buildah("from", image)
        root = Path(self.buildah("mount", container)).stat()
        self._roots[container] = root.st_dev, root.st_ino
        return container

    def remove(self, container: str) -> None:
        """End a container's processes and remove it."""
        self.end_processes()
        self.buildah("rm", container)
        del self._roots[container]

    def command(
        self,
        container: str,
        *words: str,
        user: str = "",
        environment: Mapping[str, str] | None = None,
        volumes: Sequence[str] = (),
    ) -> list[str]:
        """Return the command line that runs a command in a container, as its own user unless one is given."""
        named = {_MARK: str(self.folder), **(environment or {})}
        return [
            "buildah", *self._options, "run", "--isolation", "chroot", *(("--user", user) if user else ()),
            *(word for name, value in named.items() for word in ("--env", f"{name}={value}")),
            *(word for volume in volumes for word in ("--volume", volume)),
            container, "--", *words,
        ]  # fmt: skip

    def run(self, container: str, *words: str, **how: Any) -> subprocess.CompletedProcess[str]:
        """Run a command in a container to its end."""
        return subprocess.run(
            self.command(container, *words, **how), capture_output=True, text=True, timeout=RUN_S, check=False
        )

    def configuration(self, image: str) -> dict[str, Any]:
        """Return what an image says about its user, command, variables, labels and health."""
        seen = json.loads(self.buildah("inspect", "--type", "image", image))
        return dict(seen["Docker"]["config"])

    def buildah(self, *words: str) -> str:
        """Return what a command of buildah prints. Raises RuntimeError with its messages if it fails."""
        return _check(["buildah", *self._options, *words], BUILD_S)

    def end_processes(self) -> None:
        """Kill the processes of containers, and wait for their end."""
        deadline = time.monotonic() + _STOP_S
        while (left := self.processes()) and time.monotonic() < deadline:
            for process in left:
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.05)

    def processes(self) -> list[int]:
        """Return the processes that run in containers, by their numbers on this machine."""
        mark = f"{_MARK}={self.folder}".encode()
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                variables = (place / "environ").read_bytes().split(b"\0")
                root = (place / "root").stat()
            except OSError:
                continue
            # A daemon has no variables of the command that started it.
            if mark in variables or (root.st_dev, root.st_ino) in self._roots.values():
                found.append(int(place.name))
        return found

    def _try(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["buildah", *self._options, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)


def _pip_options() -> dict[str, str]:
    """Return this machine's configuration of pip, without the folders that a container does not have."""
    words = [sys.executable, "-m", "pip", "config", "list"]
    listed = _check(words, RUN_S)
    found: dict[str, str] = {}
    # Variables come first in the list, and replace what files say.
    for place, name, value in re.findall(r"^(:env:|global)\.([\w-]+)='(.*)'$", listed, re.MULTILINE):
        if place == ":env:" or name not in found:
            found[name] = value
    return {name: value for name, value in found.items() if name != "find-links" and not value.startswith("file:")}


def _mounts_below(folder: Path) -> list[str]:
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
    return [mount for mount in mounts if mount.startswith(f"{folder}/")]


def _check(words: Sequence[str], seconds: float) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode:
        raise RuntimeError(f"{words[0]} failed: {(done.stdout + done.stderr)[-4000:]}")
    return done.stdout.strip()
