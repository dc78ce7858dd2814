"""A namespace in a cluster: one slot, so one node, which is found from any other."""

from __future__ import annotations

import shutil
import string
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from poolrt.cachestore import CacheStore, Key
from poolrt.cachestore.redis.schema import Schema

from ...drills.ports import Port
from ..conftest import StoreMaker
from ..names import schema_of
from ..server import RedisServer
from ..server_programs import VERSIONS, program_of

SLOTS: Final = 16384
#: Distance of the port on which nodes talk to each other.
BUS: Final = 10_000
#: Bound, in seconds, on the nodes' coming to an agreement.
AGREE_S: Final = 20.0
#: What the name of a namespace may begin with.
LETTERS: Final = f"{string.ascii_letters}{string.digits}_"
KEYS: Final = [Key({"primitive": "test", "n": number}) for number in range(6)]


class Node(RedisServer):
    """One node of a cluster, on a port of 127.0.0.1."""

    def __init__(self, folder: Path, program: str | None) -> None:
        self._kept = Port(also=BUS)
        self.port = self._kept.number
        super().__init__(
            folder,
            *("--bind", "127.0.0.1", "--port", str(self.port), "--cluster-enabled", "yes"),
            program=program,
        )

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://127.0.0.1:{self.port}/0"

    def ask(self, *words: str | int) -> Any:
        """Run a command of the cluster."""
        with self.client() as client:
            return client.execute_command("CLUSTER", *words)


class Cluster:
    """Nodes with an equal share of the slots each, in order; they take two seconds to come to an agreement."""

    def __init__(self, folder: Path, count: int, program: str | None) -> None:
        self.nodes: list[Node] = []
        try:
            for number in range(count):
                self.nodes.append(Node(folder / str(number), program))
                self.nodes[number].ask("ADDSLOTS", *range(number * SLOTS // count, (number + 1) * SLOTS // count))
                self.nodes[number].ask("MEET", "127.0.0.1", self.nodes[0].port)
        except BaseException:
            self.kill()
            raise

    def agree(self) -> None:
        """Wait until all nodes know of all slots."""
        deadline = time.monotonic() + AGREE_S
        while not all(self._knows_all(node) for node in self.nodes):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def _knows_all(self, node: Node) -> bool:
        with node.client() as client:
            info = client.cluster("INFO")
            return info["cluster_state"] == "ok" and int(info["cluster_size"]) == len(self.nodes)

    def node_of(self, namespace: str) -> Node:
        """Return the node that has a namespace's slot."""
        return self.nodes[key_slot(Schema(namespace).meta.encode()) * len(self.nodes) // SLOTS]

    def other_node(self, namespace: str) -> Node:
        """Return a node that has not."""
        return next(node for node in self.nodes if node is not self.node_of(namespace))

    def kill(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.kill()


@pytest.fixture(scope="module")
def make_cluster() -> Iterator[Callable[[int, str], Cluster]]:
    """Return a maker of clusters; those that most tests need come to their agreements side by side."""
    folder = Path(tempfile.mkdtemp(prefix="poolrt-test-"))
    made: dict[tuple[int, str], Cluster] = {}

    def start(count: int, which: str) -> Cluster:
        program = program_of(which, folder)
        place = folder / f"{count}-{which}"
        place.mkdir()
        made[count, which] = Cluster(place, count, program)
        return made[count, which]

    def make(count: int, which: str) -> Cluster:
        cluster = made.get((count, which)) or start(count, which)
        cluster.agree()
        return cluster

    try:
        for usual in ((1, "default"), (1, "valkey"), (2, "default"), (2, "other")):
            start(*usual)
        yield make
    finally:
        for cluster in made.values():
            cluster.kill()
        shutil.rmtree(folder)


@pytest.fixture(params=VERSIONS)
def single(request: pytest.FixtureRequest, make_cluster: Callable[[int, str], Cluster]) -> Cluster:
    """Return a cluster of one node, of each version that is here; it still insists on one slot."""
    return make_cluster(1, request.param)


@pytest.fixture
def pair(make_cluster: Callable[[int, str], Cluster]) -> Cluster:
    """Return a cluster of two nodes."""
    return make_cluster(2, "default")


@given(
    namespace=st.builds(str.__add__, st.sampled_from(LETTERS), st.text(f"{LETTERS}.-", max_size=63)),
    digest=st.binary(min_size=32, max_size=32).map(bytes.hex),
    fence=st.integers(0, 2**53),
)
def test_all_names_of_a_namespace_are_in_one_slot(namespace: str, digest: str, fence: int) -> None:
    schema = Schema(namespace, "0123456789abcdef")
    single_names = [schema.value(digest), schema.upload(digest), schema.lease(digest), schema.wake(digest, fence)]
    names = [*schema.bookkeeping, *single_names]
    assert {key_slot(name.encode()) for name in names} == {key_slot(namespace.encode())}
    assert all(name.startswith(f"{schema.prefix}:") for name in names)


def failing() -> bytes:
    """Fail."""
    raise ValueError("no")


def live(make: Callable[..., CacheStore], tmp_path: Path) -> None:
    """Do everything that a store can do; no call may have to do without Redis."""
    with make() as store:
        for key in KEYS:
            assert store.fetch_or_create(key, lambda: b"x" * 1000).source == "created"
        key_file = f"{store.options.home}/signing.key"
        other = make(home=str(tmp_path / "other"), key_file=key_file)
        assert [found and found.source for found in other.get_many(KEYS)] == ["redis"] * 6
        assert other.remove(KEYS[0])
        store.export(tmp_path / "a.bundle")
        assert make(home=str(tmp_path / "third"), key_file=key_file).import_(tmp_path / "a.bundle").present == 5
        assert store.verify().problems == ()
        store.set_capacity(3)
        assert store.size == len(store.entries()) == 3
        assert make(home=str(tmp_path / "reader"), key_file=key_file, read_only=True).size == 3
        store.clear()
        assert store.size == 0
        assert store.stats()["degraded"] == 0
        assert store.stats()["creations"] == 6


def test_a_store_lives_in_a_cluster(make_store: StoreMaker, single: Cluster, tmp_path: Path) -> None:
    live(lambda **more: make_store(**{"url": single.nodes[0].url, **more}), tmp_path)


def test_a_store_that_asks_the_wrong_node_finds_the_right_one(
    make_store: StoreMaker, pair: Cluster, namespace: str, tmp_path: Path
) -> None:
    wrong, right = pair.other_node(namespace), pair.node_of(namespace)
    live(lambda **more: make_store(**{"url": wrong.url, **more}), tmp_path)
    with wrong.client() as client:
        assert client.dbsize() == 0
    with right.client() as client:
        assert client.dbsize() > 0
        client.flushall()


def test_a_store_comes_back_to_the_node_that_it_was_given(
    make_store: StoreMaker, make_cluster: Callable[[int, str], Cluster], namespace: str, tmp_path: Path
) -> None:
    cluster = make_cluster(2, "other")
    wrong, right = cluster.other_node(namespace), cluster.node_of(namespace)
    with make_store(url=wrong.url) as store:
        store.ping()
        store.get_or_create(KEYS[0], lambda: b"x")
        # When its node dies, then it goes on without
        right.kill()
        begin = time.monotonic()
        assert store.get_or_create(KEYS[1], lambda: b"made here") == b"made here"
        assert time.monotonic() - begin < 2.0
        assert store.stats()["degraded"] > 0
        # When the node is there again, then the store finds it again from the address that it was given
        right.start()
        cluster.agree()
        deadline = time.monotonic() + AGREE_S
        # And publishes the entries that were created meanwhile, and those that it had lost
        while store.size != 2 or not store.status().reachable:
            assert time.monotonic() < deadline
            time.sleep(0.05)
            store.stats()
    with right.client() as client:
        assert client.exists(*(schema_of(store).value(key.digest) for key in KEYS[:2])) == 2


def test_a_slot_without_a_node_costs_no_result(make_store: StoreMaker, tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="poolrt-test-"))
    node = Node(folder / "alone", None)
    try:
        with make_store(url=node.url) as store:
            assert store.get_or_create(KEYS[0], lambda: b"made here") == b"made here"
            assert store.stats()["degraded"] > 0
        with pytest.raises(redis.ResponseError), node.client() as client:
            client.get("anything")
    finally:
        node.kill()
        shutil.rmtree(folder)
