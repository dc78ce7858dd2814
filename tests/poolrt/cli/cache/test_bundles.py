"""`poolrt cache export` and `import` as programs: a second home creates nothing that the bundle has."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from poolrt.cachestore import CacheStore, Key
from poolrt.cli.report import bytes_text


class Homes:
    """Run poolrt in one of several home folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def poolrt(self, home: str, *words: str, status: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command and expect its exit status."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("POOLRT_")}
        env |= {
            "POOLRT_HOME": str(self.folder / home),
            "POOLRT_WORKERS": "1",
            "POOLRT_THREADS": "1",
            "POOLRT_ARENA_BYTES": "64MiB",
            **more,
        }
        command = [sys.executable, "-m", "poolrt", *words]
        done = subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == status, done.stderr
        return done

    def json(self, home: str, *words: str, **more: Any) -> dict[str, Any]:
        """Run a command with --json."""
        loaded = json.loads(self.poolrt(home, *words, "--json", **more).stdout)
        assert isinstance(loaded, dict)
        return loaded

    def give_key(self, source: str, target: str) -> None:
        """Let two homes have the same key."""
        (self.folder / target).mkdir(mode=0o700, exist_ok=True)
        shutil.copy2(self.folder / source / "signing.key", self.folder / target / "signing.key")


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[Homes]:
    """Homes whose servers are stopped at the end."""
    yield Homes(tmp_path)
    for folder in tmp_path.iterdir():
        if folder.is_dir():
            with CacheStore.connect(home=str(folder)) as store:
                store.down()


def _fill(home: Path, count: int = 3) -> list[Key]:
    keys = [Key({"primitive": "convolution", "number": number}) for number in range(count)]
    with CacheStore.connect(home=str(home), url=None) as store:
        for number, key in enumerate(keys):
            store.get_or_create(key, partial(bytes, 1000 * (number + 1)))
    return keys


@pytest.mark.slow
def test_a_model_that_ran_elsewhere_creates_nothing_where_its_bundle_was_imported(homes: Homes) -> None:
    # Given a model that has run in one home, and its kernels in a bundle
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 16, 8, 8)) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "small", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, homes.folder / "m.onnx")
    run = ("run", "m.onnx", "--random-inputs", "0")
    cold = homes.json("first", *run)["primitives"]
    assert cold["created"] == cold["total"] > 0
    assert homes.json("first", "cache", "export", "kernels.bundle")["entries"] == cold["total"]
    # When homes with the same key, but nothing else, import it, with Redis or without
    for home, words in (("second", ()), ("third", ("--node-only",))):
        homes.give_key("first", home)
        answer = homes.json(home, "cache", "import", "kernels.bundle", *words)
        assert (answer["imported"], answer["redis"]) == (cold["total"], not words)
        assert (homes.folder / home / "redis").exists() == (not words)
        # Then the model creates nothing there
        warm = homes.json(home, *run)["primitives"]
        assert (warm["created"], warm["files"]) == (0, cold["total"])
    # and one that may only read creates for itself, and has nothing to show for it
    homes.give_key("first", "reader")
    assert homes.json("reader", *run, "--read-only")["primitives"]["created"] == cold["total"]
    assert [path.name for path in (homes.folder / "reader").iterdir()] == ["signing.key"]
    # But in a home with another key the bundle is refused
    (homes.folder / "fourth").mkdir(mode=0o700)
    _make_key(homes.folder / "fourth")
    done = homes.poolrt("fourth", "cache", "import", "kernels.bundle", status=1)
    assert "is signed with another key" in done.stderr
    assert "nothing was imported" in done.stderr
    assert homes.json("fourth", "cache", "list")["count"] == 0


def _make_key(home: Path) -> None:
    descriptor = os.open(home / "signing.key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(descriptor, b"another key that nobody else has")
    os.close(descriptor)


def test_the_text_says_where_the_entries_went(homes: Homes) -> None:
    _fill(homes.folder / "first")
    homes.give_key("first", "second")
    size = bytes_text(homes.json("first", "cache", "export", "k.bundle")["bytes"])
    done = homes.poolrt("first", "cache", "export", "k.bundle")
    assert done.stdout.splitlines() == [f"3 entries, {size}, written to k.bundle"]
    done = homes.poolrt("second", "cache", "import", "k.bundle")
    assert done.stdout.splitlines() == [f"3 of 3 entries, {size}, imported into Redis and this node's files"]
    done = homes.poolrt("second", "cache", "import", "k.bundle", "--node-only")
    assert done.stdout.splitlines() == [
        "0 of 3 entries, 0 B, imported into this node's files",
        "3 were already present",
    ]
    assert done.stderr == ""


def test_a_terminal_shows_progress(homes: Homes) -> None:
    _fill(homes.folder / "first")
    ours, theirs = pty.openpty()
    try:
        command = [sys.executable, "-m", "poolrt", "cache", "export", "k.bundle"]
        env = {name: value for name, value in os.environ.items() if not name.startswith("POOLRT_")}
        env["POOLRT_HOME"] = str(homes.folder / "first")
        subprocess.run(
            command, cwd=homes.folder, env=env, stdout=subprocess.DEVNULL, stderr=theirs, timeout=60, check=True
        )
        assert os.read(ours, 1000) == b"\rexported 1 of 3\rexported 2 of 3\rexported 3 of 3\r\n"
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_damaged_bundle_exits_with_status_1_and_one_line(homes: Homes) -> None:
    _fill(homes.folder / "first")
    homes.give_key("first", "second")
    homes.poolrt("first", "cache", "export", "k.bundle")
    path = homes.folder / "k.bundle"
    path.write_bytes(path.read_bytes()[:-1])
    done = homes.poolrt("second", "cache", "import", "k.bundle", "--node-only", "--json", status=1)
    assert done.stderr.count("\n") == 1
    assert "nothing was imported" in done.stderr
    assert json.loads(done.stdout)["error"]["type"] == "BundleCorrupt"


def test_without_a_key_an_import_says_so_and_makes_none(homes: Homes) -> None:
    _fill(homes.folder / "first")
    homes.poolrt("first", "cache", "export", "k.bundle")
    done = homes.poolrt("second", "cache", "import", "k.bundle", "--node-only", status=1)
    assert "signing.key is refused: there is no such file" in done.stderr
    assert not (homes.folder / "second" / "signing.key").exists()


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (("import", "nowhere"), 2, "no such file"),
        (("import", "."), 2, "not a file"),
        (("export", "nowhere/k.bundle"), 2, "there is no folder nowhere"),
        (("export", "."), 1, "something that is not a file"),
        (("export",), 2, "required: FILE"),
    ],
)
@pytest.mark.one_in(3)
def test_an_impossible_path_is_refused_in_one_line(
    homes: Homes, words: tuple[str, ...], status: int, reason: str
) -> None:
    done = homes.poolrt("first", "cache", *words, status=status)
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1
