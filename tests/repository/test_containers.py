"""The image and the compose file, built with buildah and run: without configuration, for any user, and warm."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from tests.cachestore.server_programs import valkey_program

from .containers import ROOT, RUN_S, Containers, why_impossible

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
DOCKER = ROOT / "docker"
USERS = (0, 1000, 4242)


@pytest.fixture(scope="module")
def containers() -> Iterator[Containers]:
    """Containers with the images `base` and `poolrt`."""
    reason = why_impossible()
    if reason is not None:
        pytest.skip(reason)
    with Containers() as containers:
        try:
            containers.make_base("localhost/base")
        except RuntimeError as error:
            pytest.skip(f"no base can be made: {error}")
        containers.build(DOCKER / "Dockerfile", ROOT, "poolrt", BASE="localhost/base")
        yield containers


@pytest.fixture(scope="module")
def models(containers: Containers) -> Path:
    """A folder for any user's eyes, with a small model."""
    names = (("x", (4, 16)), ("y", (4, 8)))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in names)
    weights = numpy_helper.from_array(np.random.default_rng(0).normal(size=(16, 8)).astype("float32"), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Softmax", ["a"], ["y"])]
    graph = helper.make_graph(nodes, "small", [x], [y], [weights])
    folder = containers.folder / "models"
    folder.mkdir()
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    folder.chmod(0o755)
    (folder / "model.onnx").chmod(0o644)
    return folder


@pytest.fixture
def container(containers: Containers) -> Iterator[str]:
    """A new container of the image."""
    container = containers.create("poolrt")
    yield container
    containers.remove(container)


def _created(done: subprocess.CompletedProcess[str]) -> int:
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["primitives"]["total"] > 0
    return int(report["primitives"]["created"])


def test_the_image_s_own_command_needs_no_configuration(containers: Containers, container: str) -> None:
    said = containers.configuration("poolrt")
    done = containers.run(container, *said["Entrypoint"], *said["Cmd"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 failures" in done.stdout
    assert "/var/cache/poolrt/1000" in done.stdout


def test_the_image_says_who_runs_it_what_it_is_and_how_it_feels(containers: Containers) -> None:
    said = containers.configuration("poolrt")
    assert said["User"] == "1000:1000"
    assert said["Healthcheck"]["Test"] == ["CMD-SHELL", "! grep -qzx serve /proc/1/cmdline || poolrt status"]
    assert {"title", "description", "licenses"} <= {name.rpartition(".")[2] for name in said["Labels"]}


def test_the_image_has_neither_a_compiler_nor_what_only_the_build_needs(containers: Containers, container: str) -> None:
    for words in (["sh", "-c", "command -v gcc cc ld"], ["ls", "/etc/pip.conf"], ["ls", "/src"]):
        assert containers.run(container, *words).returncode != 0, words


@pytest.mark.parametrize("user", USERS)
def test_any_user_runs_a_model_without_configuration_and_a_second_time_nothing_is_created(
    containers: Containers, container: str, models: Path, user: int
) -> None:
    def run() -> int:
        words = ("poolrt", "run", "/models/model.onnx", "--random-inputs", "0", "--json")
        return _created(containers.run(container, *words, user=f"{user}:{user}", volumes=[f"{models}:/models:ro"]))

    assert run() > 0
    assert run() == 0
    # A daemon that a command of the container has left ends with the container
    assert containers.processes()
    containers.end_processes()
    assert not containers.processes()


def test_variables_override_the_image_s_settings_and_empty_ones_unset_them(
    containers: Containers, container: str
) -> None:
    production = {"POOLRT_CONFIG": "/etc/poolrt/production.toml"}
    # Given settings that this container cannot keep, for it has no key
    done = containers.run(container, "poolrt", "doctor", environment=production)
    assert done.returncode == 1
    assert "/run/secrets/poolrt_key" in done.stdout
    # When variables unset them, or the whole file, then it can
    for more in ({"POOLRT_REDIS_URL": "", "POOLRT_KEY_FILE": ""}, {"POOLRT_CONFIG": ""}):
        done = containers.run(container, "poolrt", "doctor", environment=production | more)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "embedded redis" in done.stdout


def test_the_image_with_a_compiler_creates_opencl_kernels(containers: Containers) -> None:
    containers.build(DOCKER / "Dockerfile.opencl", DOCKER, "poolrt-opencl", POOLRT="poolrt")
    container = containers.create("poolrt-opencl")
    done = containers.run(container, "poolrt", "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^ok +opencl:0 ", done.stdout, re.MULTILINE), done.stdout
    assert containers.configuration("poolrt-opencl")["User"] == "1000:1000"
    containers.remove(container)


def test_the_image_with_kernels_creates_nothing_with_the_key_of_their_export(
    containers: Containers, container: str, models: Path
) -> None:
    # Given a bundle of a model's kernels, and the key that they are signed with
    exchange, context = containers.folder / "exchange", containers.folder / "kernels"
    for folder in (exchange, context):
        folder.mkdir()
    key = exchange / "poolrt.key"
    key.write_text(os.urandom(32).hex())
    for path, mode in ((exchange, 0o700), (key, 0o600)):
        path.chmod(mode)
        os.chown(path, 1000, 1000)
    how: dict[str, Any] = {
        "environment": {"POOLRT_CONFIG": "/etc/poolrt/production.toml", "POOLRT_REDIS_URL": ""},
        "volumes": [f"{models}:/models:ro", f"{key}:/run/secrets/poolrt_key:ro", f"{exchange}:/exchange"],
    }
    run = ("poolrt", "run", "/models/model.onnx", "--random-inputs", "0", "--json")
    assert _created(containers.run(container, *run, **how)) > 0
    exported = containers.run(container, "poolrt", "cache", "export", "/exchange/kernels.bundle", **how)
    assert exported.returncode == 0, exported.stderr
    shutil.move(exchange / "kernels.bundle", context)
    # When an image is built with it
    secret = ("--secret", f"id=poolrt_key,src={key}")
    containers.build(DOCKER / "Dockerfile.kernels", context, "poolrt-with-kernels", *secret)
    # Then its containers create nothing
    other = containers.create("poolrt-with-kernels")
    how["environment"] = {"POOLRT_REDIS_URL": ""}
    assert _created(containers.run(other, *run, **how)) == 0
    containers.remove(other)


class Composition:
    """What `docker compose up` would start for one user: its variables, mounts and commands, from docker/compose.yaml."""

    def __init__(self, containers: Containers, user: int, models: Path) -> None:
        self._containers = containers
        self._place = containers.folder / f"compose-{user}"
        self._place.mkdir()
        self._services = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))["services"]
        self._prepare(user)
        self._socket = self._place / "socket"
        self._socket.mkdir()
        # As a volume takes it from the image.
        self._socket.chmod(0o1777)
        self._models = models
        self._port = _free_port()
        self.redis = self._start_redis()

    def _prepare(self, user: int) -> None:
        docker = self._place / "docker"
        docker.mkdir()
        shutil.copy(DOCKER / "prepare", docker)
        os.chown(docker, user, user)
        subprocess.run([docker / "prepare"], user=user, group=user, extra_groups=[], check=True, timeout=RUN_S)
        written = dict(re.findall(r"^(\w+)=(.*)$", (docker / ".env").read_text(), re.MULTILINE))
        self.user = re.sub(r"\$\{(\w+):-[^}]*\}", lambda match: written[match[1]], self._services["pool"]["user"])
        self._key = docker / "poolrt.key"
        assert (self._key.stat().st_uid, stat.S_IMODE(self._key.stat().st_mode)) == (user, 0o600)

    def _start_redis(self) -> subprocess.Popen[bytes]:
        _, *words = self._services["redis"]["command"]
        own = ("--port", str(self._port), "--bind", "127.0.0.1", "--dir", str(self._place), "--logfile", "redis.log")
        return subprocess.Popen([valkey_program(), *words, *own])

    def how(self, service: str) -> dict[str, Any]:
        """Return user, variables and mounts of a service."""
        said = self._services[service]
        # Containers have the host's network here, and no names in it.
        address = {"POOLRT_REDIS_URL": f"redis://127.0.0.1:{self._port}/0"}
        volumes = [f"{self._socket}:/run/poolrt", f"{self._models}:/models:ro"]
        secrets = [f"{self._key}:/run/secrets/{name}:ro" for name in said.get("secrets", ())]
        return {"user": self.user, "environment": said["environment"] | address, "volumes": volumes + secrets}

    def words(self, service: str, key: str = "command") -> list[str]:
        """Return a service's command, or that of its health check."""
        return (
            list(self._services[service][key]) if key == "command" else list(self._services[service][key]["test"][1:])
        )

    def serve(self) -> int:
        """Start the pool in a new container, run the client in another, stop the pool; return the number of creations."""
        pool, client = self._containers.create("poolrt"), self._containers.create("poolrt")
        command = self._containers.command(pool, "poolrt", *self.words("pool"), **self.how("pool"))
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
            try:
                deadline = time.monotonic() + RUN_S
                while self._containers.run(pool, *self.words("pool", "healthcheck"), **self.how("pool")).returncode:
                    assert server.poll() is None, server.communicate()[0]
                    assert time.monotonic() < deadline, "the pool does not get healthy"
                    time.sleep(0.1)
                done = self._containers.run(client, "poolrt", *self.words("client"), "--json", **self.how("client"))
                created = _created(done)
                stopped = self._containers.run(pool, "poolrt", "stop", **self.how("pool"))
                assert stopped.returncode == 0, stopped.stderr
                assert server.wait(RUN_S) == 0
            finally:
                self._containers.end_processes()
                server.kill()
        for container in (pool, client):
            self._containers.remove(container)
        return created

    def close(self) -> None:
        """End the server."""
        self.redis.terminate()
        self.redis.wait(RUN_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("user", USERS)
def test_the_composition_starts_for_any_user_and_warm_in_new_containers(
    containers: Containers, models: Path, user: int
) -> None:
    composition = Composition(containers, user, models)
    try:
        assert composition.user == f"{user}:{user}"
        # Given an empty Redis, then the pool creates; new containers beside the same Redis create nothing
        assert composition.serve() > 0
        assert composition.serve() == 0
    finally:
        composition.close()
