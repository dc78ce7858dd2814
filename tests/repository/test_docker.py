"""docker/: checked as far as can be without an engine. What the files name exists, and is spelt as poolrt spells it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from poolrt.cli.command_line import make_parser
from poolrt.settings import Settings, env_name

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
VARIABLES = {env_name(knob.name) for knob in fields(Settings)} | {"POOLRT_CONFIG"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The compose file as data."""
    loaded = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def _instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", (DOCKER / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]


def _copies() -> list[tuple[list[str], str]]:
    """The COPY instructions that take from the repository, as sources and target."""
    words = [shlex.split(rest) for name, rest in _instructions() if name == "COPY"]
    return [(line[:-1], line[-1]) for line in words if not line[0].startswith("--from")]


def _environment() -> dict[str, str]:
    pairs = [pair for name, rest in _instructions() if name == "ENV" for pair in shlex.split(rest)]
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


def _settings(variables: Mapping[str, str]) -> Settings:
    """The settings of a container with these variables: its file is the one that the image copied there."""
    (copied,) = [sources for sources, target in _copies() if target == variables["POOLRT_CONFIG"]]
    return Settings.load(environ={**variables, "POOLRT_CONFIG": str(ROOT / copied[0])})


def test_everything_the_image_copies_exists_and_is_let_through_to_the_builder() -> None:
    rules = (DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    sources = [source for copied, _ in _copies() for source in copied]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert f"!{source.split('/')[0]}" in rules, source


def test_the_image_copies_all_that_the_package_is_built_from() -> None:
    sources = {source for copied, _ in _copies() for source in copied}
    assert {"pyproject.toml", "README.md", "LICENSE", "poolrt", "workers", "cachestore"} <= sources


def test_the_image_sets_variables_that_poolrt_reads_and_a_config_that_it_copied() -> None:
    environment = _environment()
    assert {name for name in environment if name.startswith("POOLRT_")} <= VARIABLES
    assert environment["POOLRT_CONFIG"] in {target for _, target in _copies()}


def test_the_stages_are_named_before_they_are_copied_from_and_the_last_does_not_run_as_root() -> None:
    stages: list[str] = []
    users: list[str] = []
    for name, rest in _instructions():
        if name == "FROM":
            stages += re.findall(r" AS (\w+)$", rest)
            users = []
        if name == "USER":
            users.append(rest)
        source = re.match(r"--from=(\w+)", rest) if name == "COPY" else None
        assert source is None or source[1] in stages
    assert users
    assert users[-1] not in ("root", "0")


def test_the_image_s_own_settings_need_no_server_and_no_file() -> None:
    settings = _settings(_environment())
    assert (settings.redis_url, settings.key_file, settings.socket) == ("", "", "")
    # Each user has a folder of its own, in one that any user may write to.
    assert settings.home == "/var/cache/poolrt/{uid}"
    (made,) = [rest for name, rest in _instructions() if name == "RUN" and "/var/cache/poolrt" in rest]
    assert re.search(r"install -d -m 1777 (\S+ )*/var/cache/poolrt( |$)", made)


def test_the_image_has_no_compiler_and_only_the_one_for_opencl_adds_it() -> None:
    assert "gcc" not in "".join(rest for _, rest in _instructions())
    more = (DOCKER / "Dockerfile.opencl").read_text(encoding="utf-8")
    assert "apt-get install -y --no-install-recommends gcc libc6-dev" in more
    assert re.findall(r"^USER (.*)$", more, re.MULTILINE) == ["0", "1000:1000"]


def test_the_image_s_user_is_a_number_and_its_health_is_the_server_s() -> None:
    instructions = dict(_instructions())
    assert instructions["USER"] == "1000:1000"
    assert "useradd --create-home --uid 1000 " in "".join(rest for name, rest in _instructions() if name == "RUN")
    words = instructions["HEALTHCHECK"].partition(" || ")[2].split()
    assert words[0] == "poolrt"
    assert make_parser(words[1:]).parse_args(words[1:]).command == "status"


def test_the_health_check_asks_only_servers(tmp_path: Path) -> None:
    # Given the check, with a program that stands for a pool that does not answer
    check = re.sub(r"^.*? CMD ", "", dict(_instructions())["HEALTHCHECK"])
    (tmp_path / "poolrt").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "poolrt").chmod(0o755)
    # When the container's first process is a server or something else, then the pool is asked or not
    for words, status in ((["docker-init", "--", "poolrt", "serve"], 1), (["poolrt", "run", "/m/serve.onnx"], 0)):
        (tmp_path / "cmdline").write_text("".join(f"{word}\0" for word in words))
        code = check.replace("/proc/1/cmdline", str(tmp_path / "cmdline"))
        path = f"{tmp_path}:/usr/bin:/bin"
        assert subprocess.run(["sh", "-c", code], env={"PATH": path}, timeout=30, check=False).returncode == status


def test_bases_are_named_with_their_versions(compose: dict[str, Any]) -> None:
    instructions = _instructions()
    (base,) = [rest.removeprefix("BASE=") for name, rest in instructions if name == "ARG"]
    assert [rest.split()[0] for name, rest in instructions if name == "FROM"] == ["${BASE}", "${BASE}"]
    for image in (base, compose["services"]["redis"]["image"]):
        assert re.fullmatch(r"[a-z/]+:\d+\.\d+\.\d+-[a-z-]+", image), image


def test_the_dependencies_are_installed_before_the_sources_are_copied(tmp_path: Path) -> None:
    # Given the step that installs before poolrt's sources are there
    names = [(name, rest) for name, rest in _instructions() if name in ("RUN", "COPY")]
    (step,) = [index for index, (_, rest) in enumerate(names) if "pip install" in rest and "--no-deps" not in rest]
    assert [rest for name, rest in names[:step] if name == "COPY"] == ["pyproject.toml ./"]
    # When its list of dependencies is made
    code = re.search(r"python3 -c '([^']*)'", names[step][1])
    assert code is not None
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    words = [sys.executable, "-c", code[1]]
    made = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True).stdout
    # Then it has those of the package and of the extra for models
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert made.split("\n")[:-1] == [*project["dependencies"], *project["optional-dependencies"]["onnx"]]


def test_the_image_starts_with_a_command_line_that_poolrt_accepts() -> None:
    instructions = dict(_instructions())
    assert json.loads(instructions["ENTRYPOINT"]) == ["poolrt"]
    words = json.loads(instructions["CMD"])
    assert make_parser(words).parse_args(words).command == words[0]


@pytest.mark.parametrize("service", ["pool", "client"])
def test_a_services_command_is_a_command_line_that_poolrt_accepts(compose: dict[str, Any], service: str) -> None:
    words = compose["services"][service]["command"]
    assert make_parser(words).parse_args(words).command == words[0]


def test_the_pool_is_well_while_poolrt_can_tell_its_status(compose: dict[str, Any]) -> None:
    kind, program, *words = compose["services"]["pool"]["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "poolrt")
    assert make_parser(words).parse_args(words).command == "status"


def test_the_client_reaches_the_pool_through_a_socket_in_a_volume_that_both_mount(compose: dict[str, Any]) -> None:
    pool, client = compose["services"]["pool"], compose["services"]["client"]
    listens = _settings(pool["environment"]).socket_path
    words = client["command"]
    assert make_parser(words).parse_args(words).socket == str(listens)
    (mount,) = set(pool["volumes"]) & set(client["volumes"])
    assert mount == f"socket:{listens.parent}"
    # Only programs of one user reach each other, and any user's may listen in the folder that the image has there
    assert client["user"] == pool["user"]
    (made,) = [rest for name, rest in _instructions() if name == "RUN" and str(listens.parent) in rest]
    assert re.search(rf"install -d -m 1777 (\S+ )*{listens.parent}( |$)", made)
    assert client["depends_on"] == {"pool": {"condition": "service_healthy"}}
    assert client["image"] == pool["image"]


def test_the_compose_file_builds_from_files_that_exist(compose: dict[str, Any]) -> None:
    build = compose["services"]["pool"]["build"]
    context = (DOCKER / build["context"]).resolve()
    assert context == ROOT
    assert (context / build["dockerfile"]).is_file()


def test_the_pool_is_led_to_the_redis_service_and_waits_for_its_health(compose: dict[str, Any]) -> None:
    pool, redis = compose["services"]["pool"], compose["services"]["redis"]
    assert set(pool["environment"]) | set(compose["services"]["client"]["environment"]) <= VARIABLES
    url = pool["environment"]["POOLRT_REDIS_URL"]
    assert url == Settings.load(ROOT / "configs" / "production.toml", environ={}).redis_url
    assert _settings(pool["environment"]).redis_url == url
    assert pool["depends_on"] == {"redis": {"condition": "service_healthy"}}
    assert redis["healthcheck"]["test"][0] == "CMD"
    assert set(pool["networks"]) & set(redis["networks"])


def test_what_the_services_mount_and_join_is_declared(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert set(service.get("networks", [])) <= set(compose["networks"])
        assert set(service.get("secrets", [])) <= set(compose["secrets"])
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in compose["volumes"] or source.startswith("$")


def test_the_key_is_mounted_where_the_production_settings_look_for_it_and_is_never_committed(
    compose: dict[str, Any],
) -> None:
    (secret,) = compose["services"]["pool"]["secrets"]
    assert Settings.load(ROOT / "configs" / "production.toml", environ={}).key_file == f"/run/secrets/{secret}"
    name = compose["secrets"][secret]["file"].removeprefix("./")
    assert f"/docker/{name}" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_the_preparation_makes_a_key_once_and_names_the_user(tmp_path: Path) -> None:
    shutil.copy(DOCKER / "prepare", tmp_path)
    keys = []
    for _ in range(2):
        subprocess.run([tmp_path / "prepare"], capture_output=True, timeout=30, check=True)
        keys.append((tmp_path / "poolrt.key").read_text())
    assert keys[0] == keys[1]
    assert re.fullmatch("[0-9a-f]{64}", keys[0])
    assert stat.S_IMODE((tmp_path / "poolrt.key").stat().st_mode) == 0o600
    assert (tmp_path / ".env").read_text() == f"UID={os.getuid()}\nGID={os.getgid()}\n"
    assert {path.name for path in tmp_path.iterdir()} == {"prepare", "poolrt.key", ".env"}
    assert "/docker/.env" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
def test_the_preparation_refuses_the_key_of_another_user(tmp_path: Path) -> None:
    shutil.copy(DOCKER / "prepare", tmp_path)
    (tmp_path / "poolrt.key").touch()
    os.chown(tmp_path / "poolrt.key", 4242, 4242)
    done = subprocess.run([tmp_path / "prepare"], capture_output=True, text=True, timeout=30, check=False)
    said = "docker/poolrt.key belongs to another user than 0: run docker/prepare as that user, or remove the file\n"
    assert (done.returncode, done.stderr) == (1, said)
    assert not (tmp_path / ".env").exists()


def test_the_server_keeps_more_than_the_store_may_fill(compose: dict[str, Any]) -> None:
    words = compose["services"]["redis"]["command"]
    limit = words[words.index("--maxmemory") + 1]
    assert limit.endswith("gb")
    stored = Settings.load(ROOT / "configs" / "production.toml", environ={}).store_capacity_bytes
    assert int(limit.removesuffix("gb")) * 1000**3 > stored > 0


def test_the_server_evicts_neither_leases_nor_books(compose: dict[str, Any]) -> None:
    words = compose["services"]["redis"]["command"]
    assert words[words.index("--maxmemory-policy") + 1] == "noeviction"
