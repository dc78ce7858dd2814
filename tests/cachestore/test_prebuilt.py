"""The prebuilt tier: what was written is found, and nothing else is ever returned, damaged or not."""

from __future__ import annotations

import os
import random
import warnings
from pathlib import Path

import pytest

from poolrt.cachestore import EntryCorrupt, Key, PathRefused, StoreOptions
from poolrt.cachestore.errors import PrebuiltRefused
from poolrt.cachestore.prebuilt import PACKAGE_FILE, PrebuiltFile, PrebuiltTier, prebuilt_file, write_prebuilt
from poolrt.cachestore.stats import Tally

from .conftest import StoreMaker

PARTS = {Key({"part": number}): bytes([number]) * (100 + number) for number in range(5)}
MISSING = Key({"part": 5})
ABOUT = {"made with": "numba 1"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file with the parts."""
    found = tmp_path / "kernels.parts"
    write_prebuilt(str(found), {key.digest: part for key, part in PARTS.items()}, ABOUT)
    return found


def _found(path: Path) -> tuple[dict[Key, bytes | None], dict[str, int], list[str]]:
    """Look all parts up in a new tier; return them, what was counted, and the warnings."""
    tally = Tally()
    tier = PrebuiltTier(str(path), tally)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        parts = {key: tier.get(key) for key in [*PARTS, MISSING, *PARTS]}
    assert all(each.category is PrebuiltRefused for each in seen)
    return parts, tally.take().counts, [str(each.message) for each in seen]


def test_parts_are_found_and_nothing_else(path: Path) -> None:
    parts, counts, lines = _found(path)
    assert parts == {**PARTS, MISSING: None}
    assert (counts, lines) == ({}, [])
    file = PrebuiltFile(str(path))
    assert (len(file), file.about, file.bytes) == (len(PARTS), ABOUT, path.stat().st_size)


def test_a_missing_file_is_an_empty_tier_and_no_error(tmp_path: Path) -> None:
    parts, counts, lines = _found(tmp_path / "none")
    assert set(parts.values()) == {None}
    assert (counts, lines) == ({}, [])


def test_every_byte_matters_and_no_damage_gives_other_parts(path: Path) -> None:
    sound = path.read_bytes()
    for place in range(len(sound)):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 1 << random.randrange(8)]) + sound[place + 1 :])
        parts, counts, lines = _found(path)
        # One part at most is lost, or all; each loss is counted, and one line says so.
        assert all(part in (None, PARTS.get(key)) for key, part in parts.items()), place
        assert counts["corrupt"] == 1, place
        assert len(lines) == 1, place
        assert "POOLRT_PREBUILT=none" in lines[0]


@pytest.mark.parametrize("length", [0, 1, 44, 45, 200, -101, -1])
def test_a_file_that_was_cut_short_costs_parts_and_one_line(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])
    parts, counts, lines = _found(path)
    assert None in {parts[key] for key in PARTS}
    assert all(part in (None, PARTS.get(key)) for key, part in parts.items())
    assert counts["corrupt"] >= 1
    assert len(lines) == 1


def test_a_file_that_is_cut_short_in_use_is_a_miss(path: Path) -> None:
    file = PrebuiltFile(str(path))
    os.truncate(path, 50)
    with pytest.raises(EntryCorrupt):
        file.read(next(iter(PARTS)))


def test_a_pipe_or_a_folder_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        parts, counts, lines = _found(path)
        assert set(parts.values()) == {None}
        assert (counts, len(lines)) == ({"corrupt": 1}, 1)


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_others_may_write_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    with pytest.raises(PathRefused, match=f"{mode:04o}"):
        PrebuiltFile(str(path))
    parts, counts, lines = _found(path)
    assert set(parts.values()) == {None}
    assert (counts, len(lines)) == ({"forged": 1}, 1)


def test_a_file_in_a_folder_that_others_may_write_is_refused(path: Path) -> None:
    path.parent.chmod(0o777)
    with pytest.raises(PathRefused):
        PrebuiltFile(str(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_refused(path: Path) -> None:
    os.chown(path, 4242, -1)
    with pytest.raises(PathRefused, match="user 4242"):
        PrebuiltFile(str(path))


def test_the_option_names_a_file_the_package_s_or_none(tmp_path: Path) -> None:
    assert prebuilt_file("none") is None
    assert prebuilt_file("package") == PACKAGE_FILE
    assert prebuilt_file(str(tmp_path)) == str(tmp_path)
    for wrong in ("", "some", "kernels.parts", "/a\0b"):
        with pytest.raises(ValueError, match="prebuilt"):
            StoreOptions(home=str(tmp_path), prebuilt=wrong)


def test_assembled_payloads_come_after_files_and_before_redis(
    path: Path, make_store: StoreMaker, tmp_path: Path
) -> None:
    # Given one entry in files, one in Redis, and parts for all
    in_files, in_redis, new = (Key({"entry": number}) for number in range(3))
    key_file = tmp_path / "signing.key"
    key_file.write_bytes(os.urandom(32))
    key_file.chmod(0o600)
    with make_store(home=str(tmp_path / "elsewhere"), key_file=str(key_file)) as other:
        other.get_or_create(in_redis, lambda: b"from Redis")
    asked = []
    with make_store(prebuilt=str(path), key_file=str(key_file)) as store:
        store.get_or_create(in_files, lambda: b"from files")

        def assemble(key: Key) -> bytes | None:
            asked.append(key)
            return store.prebuilt.get(next(iter(PARTS))) if key == new else None

        store.set_memory_capacity(0)
        # When they are looked up
        found = store.get_many([in_files, in_redis, new], assemble=assemble)
        # Then parts are asked for what is not in files, and Redis for the rest
        assert [(each.value, each.source) for each in found if each] == [
            (b"from files", "files"), (b"from Redis", "redis"), (next(iter(PARTS.values())), "prebuilt"),
        ]  # fmt: skip
        assert asked == [in_redis, new]
        outcome = store.fetch_or_create(new, lambda: pytest.fail("it is prebuilt"), assemble=assemble)
        assert (outcome.value, outcome.source) == (next(iter(PARTS.values())), "prebuilt")
        stats = store.stats()
        assert (stats["hits"]["prebuilt"], stats["creations"], stats["entries"]) == (2, 2, 2)
