"""docker/Dockerfile.kernels: it fits the image that it is made from, and its import works as it is written."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from poolrt.cachestore import CacheStore, Key
from poolrt.cli.command_line import make_parser
from poolrt.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"


def _instructions(name: str) -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", (DOCKER / name).read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]


@pytest.fixture(scope="module")
def step() -> list[str]:
    """The words of the step that imports."""
    (run,) = [rest for name, rest in _instructions("Dockerfile.kernels") if name == "RUN"]
    return shlex.split(run)


@pytest.fixture(scope="module")
def command(step: list[str]) -> list[str]:
    """The command of that step."""
    return [word for word in step if not word.startswith("--mount=")]


def test_the_command_is_one_that_poolrt_accepts(command: list[str]) -> None:
    assert command[0] == "poolrt"
    options = make_parser(command[1:]).parse_args(command[1:])
    assert (options.command, options.action, options.node_only) == ("cache", "import", True)


def test_the_key_comes_where_the_image_looks_for_it_readable_by_its_user_alone(step: list[str]) -> None:
    mounts = [dict(re.findall(r"(\w+)=([^,]+)", word.removeprefix("--mount="))) for word in step if "--mount=" in word]
    (secret,) = [mount for mount in mounts if mount["type"] == "secret"]
    settings = Settings.load(ROOT / "configs" / "production.toml", environ={})
    assert settings.key_file == f"/run/secrets/{secret['id']}"
    # Both stages read them, so that a container finds the kernels under the namespace of their import.
    said = [rest for name, rest in _instructions("Dockerfile.kernels") if name == "ENV"]
    assert said == ["POOLRT_CONFIG=/etc/poolrt/production.toml"] * 2
    uid = re.search(r"useradd .*--uid (\d+)", (DOCKER / "Dockerfile").read_text(encoding="utf-8"))
    assert uid is not None
    assert (secret["uid"], secret["mode"], secret["required"]) == (uid[1], "0400", "true")
    copies = [rest for name, rest in _instructions("Dockerfile.kernels") if name == "COPY"]
    assert all(f"--chown={uid[1]}:{uid[1]} " in copy for copy in copies)


def test_what_is_copied_is_the_image_s_home_and_the_bundle_that_the_builder_gets(command: list[str]) -> None:
    copies = [shlex.split(rest) for name, rest in _instructions("Dockerfile.kernels") if name == "COPY"]
    bundle, home = ([word for word in copy if not word.startswith("--")] for copy in copies)
    (environment,) = [rest for name, rest in _instructions("Dockerfile") if name == "ENV"]
    assert home == [re.findall(r"POOLRT_HOME=(\S+)", environment)[0].replace("{uid}", "1000")] * 2
    assert bundle[1] in command
    rules = (DOCKER / "Dockerfile.kernels.dockerignore").read_text(encoding="utf-8").splitlines()
    assert [rule for rule in rules if rule.startswith("!")] == [f"!{bundle[0]}"]
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert f"/docker/{bundle[0]}" in ignored


def test_the_import_needs_no_redis_and_leaves_nothing_but_entries(command: list[str], tmp_path: Path) -> None:
    # Given a bundle of the production namespace, and its key
    key_file = tmp_path / "poolrt_key"
    shutil.copy(_key(tmp_path), key_file)
    key_file.chmod(0o400)
    options = {"url": "unix:///nobody", "namespace": "production", "key_file": str(key_file)}
    with CacheStore.connect(home=str(tmp_path / "elsewhere"), **options) as store:
        store.get_or_create(Key({"primitive": "test"}), lambda: b"x")
        store.export(tmp_path / "kernels.bundle")
    # When it is imported as in the image, where the Redis of the settings cannot be reached
    words = [str(tmp_path / "kernels.bundle") if word == "/tmp/kernels.bundle" else word for word in command[1:]]
    home = tmp_path / "home"
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("POOLRT_")},
        "POOLRT_CONFIG": str(ROOT / "configs" / "production.toml"),
        "POOLRT_KEY_FILE": str(key_file),
        "POOLRT_HOME": str(home),
    }
    done = subprocess.run(
        [sys.executable, "-m", "poolrt", *words],
        env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    # Then the entry is in the home folder, and no key and no server
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 of 1 entries")
    assert [path.name for path in home.iterdir()] == ["production"]
    with CacheStore.connect(home=str(home), **options) as store:
        assert store.fetch_or_create(Key({"primitive": "test"}), bytes).source == "files"


def _key(folder: Path) -> Path:
    path = folder / "made.key"
    path.write_bytes(os.urandom(32).hex().encode())
    return path
