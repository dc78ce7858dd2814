"""docker/: checked as far as can be without an engine. What the files name exists, and is spelt as poolrt spells it."""

from __future__ import annotations

import json
import re
import shlex
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
    listens = Settings.load(environ=pool["environment"]).socket_path
    words = client["command"]
    assert make_parser(words).parse_args(words).socket == str(listens)
    (mount,) = set(pool["volumes"]) & set(client["volumes"])
    assert mount == f"socket:{listens.parent}"
    # Only programs of one user reach each other, and any user's may listen in the folder that the image has there
    assert client["user"] == pool["user"]
    (made,) = [rest for name, rest in _instructions() if name == "RUN" and str(listens.parent) in rest]
    assert f"install -d -m 1777 {listens.parent}" in made
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
    assert Settings.load(environ=pool["environment"]).redis_url == url
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


def test_the_server_keeps_more_than_the_store_may_fill(compose: dict[str, Any]) -> None:
    words = compose["services"]["redis"]["command"]
    limit = words[words.index("--maxmemory") + 1]
    assert limit.endswith("gb")
    stored = Settings.load(ROOT / "configs" / "production.toml", environ={}).store_capacity_bytes
    assert int(limit.removesuffix("gb")) * 1000**3 > stored > 0


def test_the_server_evicts_neither_leases_nor_books(compose: dict[str, Any]) -> None:
    words = compose["services"]["redis"]["command"]
    assert words[words.index("--maxmemory-policy") + 1] == "noeviction"
