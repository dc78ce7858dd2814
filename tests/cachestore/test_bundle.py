"""Bundles: a whole file is read back as it was written, a changed one not at all."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolrt.cachestore import BundleCorrupt, BundleForged, EntryCorrupt, EntryForged, Key
from poolrt.cachestore.bundle import open_bundle, write_bundle
from poolrt.cachestore.entry import EntryCodec, EntryMeta
from poolrt.cachestore.signing import SigningKey

SIGNING = SigningKey(b"0123456789abcdef")
OTHER = SigningKey(b"fedcba9876543210")
META = EntryMeta(1, 2.0, 3.0, "host", "")


def entries(*payloads: bytes) -> list[tuple[str, bytes]]:
    """Return signed entries with these payloads."""
    codec = EntryCodec(SIGNING, "space")
    keys = [Key({"n": number}) for number in range(len(payloads))]
    return [(key.digest, codec.pack(key.canonical, load, META)) for key, load in zip(keys, payloads, strict=True)]


def read_all(path: Path, signing: SigningKey = SIGNING) -> tuple[str, list[tuple[str, bytes]]]:
    """Return the namespace and the entries of a bundle."""
    with open_bundle(str(path), signing) as bundle:
        return bundle.namespace, [(entry.digest, bundle.read(entry)) for entry in bundle.entries]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a bundle goes."""
    return tmp_path / "some.bundle"


@given(payloads=st.lists(st.binary(max_size=300), max_size=6))
def test_what_was_written_is_read_in_the_same_order(payloads: list[bytes]) -> None:
    written = entries(*payloads)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "b"
        assert write_bundle(str(path), SIGNING, "space", written) == (
            len(written),
            sum(len(blob) for _, blob in written),
        )
        assert read_all(path) == ("space", written)


WHOLE = entries(b"one" * 20, b"", b"three" * 300)


def bundle_of(written: list[tuple[str, bytes]], signing: SigningKey = SIGNING) -> bytes:
    """Return the bytes of a bundle."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "b"
        write_bundle(str(path), signing, "space", written)
        return path.read_bytes()


GOOD = bundle_of(WHOLE)
FRAME = 41
#: Where the header ends, and each entry with its frame.
CUTS = [19 + 4]
for _, _blob in WHOLE:
    CUTS.append(CUTS[-1] + FRAME + len(_blob))


def refused(data: bytes) -> BundleCorrupt:
    """Return the error with which a file of these bytes is refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "b"
        path.write_bytes(data)
        with pytest.raises(BundleCorrupt) as caught:
            read_all(path)
        assert caught.value.path == str(path)
        return caught.value


def test_the_regions_are_where_these_tests_think() -> None:
    assert all(GOOD[cut] == 1 for cut in CUTS[:-1])
    assert GOOD[CUTS[-1]] == 0
    assert len(GOOD) == CUTS[-1] + 17 + 32


@given(position=st.integers(0, len(GOOD) - 1), flip=st.integers(1, 255))
def test_a_byte_changed_anywhere_is_noticed(position: int, flip: int) -> None:
    data = bytearray(GOOD)
    data[position] ^= flip
    refused(bytes(data))


@pytest.mark.parametrize(
    "position", [0, 4, 5, 12, 13, 14, 18, 19, 22, *(cut + 5 for cut in CUTS), -49, -48, -33, -32, -1]
)
def test_a_bit_changed_in_each_region_is_noticed(position: int) -> None:
    data = bytearray(GOOD)
    data[position] ^= 1
    refused(bytes(data))


@given(size=st.integers(0, len(GOOD) - 1))
def test_a_file_cut_short_anywhere_is_noticed(size: int) -> None:
    refused(GOOD[:size])


@given(position=st.integers(0, len(GOOD)), more=st.binary(min_size=1, max_size=100))
def test_bytes_put_in_anywhere_are_noticed(position: int, more: bytes) -> None:
    refused(GOOD[:position] + more + GOOD[position:])


@given(data=st.binary(max_size=400))
def test_a_file_of_something_else_is_noticed(data: bytes) -> None:
    refused(data)
    refused(GOOD[:23] + data)


def _frames(data: bytes) -> list[bytes]:
    return [data[begin:end] for begin, end in itertools.pairwise(CUTS)]


@pytest.mark.parametrize(
    "rearrange",
    [
        lambda frames: frames[::-1],
        lambda frames: [frames[1], frames[0], frames[2]],
        lambda frames: frames[:2],
        lambda frames: [*frames, frames[0]],
        lambda frames: [],
    ],
    ids=["turned round", "two exchanged", "one left out", "one twice", "none left"],
)
def test_genuine_entries_in_another_arrangement_are_noticed(
    rearrange: Callable[[list[bytes]], list[bytes]],
) -> None:
    refused(GOOD[: CUTS[0]] + b"".join(rearrange(_frames(GOOD))) + GOOD[CUTS[-1] :])


def test_a_genuine_entry_of_another_bundle_is_noticed() -> None:
    (stranger,) = (bundle_of(entries(b"stranger"))[CUTS[0] : -49],)
    refused(GOOD[: CUTS[-1]] + stranger + GOOD[CUTS[-1] :])


def test_another_key_is_distinguished_from_damage(path: Path) -> None:
    path.write_bytes(bundle_of(WHOLE, OTHER))
    with pytest.raises(BundleForged, match="another key") as caught:
        read_all(path)
    assert (caught.value.key_id, caught.value.own_key_id) == (OTHER.id.hex(), SIGNING.id.hex())
    assert isinstance(caught.value, EntryForged)


def test_damage_is_an_entry_corrupt_too(path: Path) -> None:
    path.write_bytes(GOOD[:-1])
    with pytest.raises(EntryCorrupt, match="nothing was imported"):
        read_all(path)


def test_a_copied_key_id_does_not_help_a_forger(path: Path) -> None:
    forger = SigningKey(b"someone else's key")
    forger.id = SIGNING.id
    path.write_bytes(bundle_of(WHOLE, forger))
    with pytest.raises(BundleCorrupt, match="signature"):
        read_all(path)


def test_the_tag_of_an_entry_is_no_tag_of_a_bundle() -> None:
    refused(GOOD[:-32] + WHOLE[0][1][-32:])


def test_a_bundle_is_for_its_owner_only_and_replaces_the_file_before_it(path: Path) -> None:
    path.write_bytes(b"old")
    path.chmod(0o644)
    write_bundle(str(path), SIGNING, "space", WHOLE)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_all(path)[1] == WHOLE


def test_a_failure_half_way_leaves_the_old_file_and_no_draft(path: Path) -> None:
    path.write_bytes(b"old")

    def failing() -> object:
        yield WHOLE[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_bundle(str(path), SIGNING, "space", failing())  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


def test_a_link_is_followed_rather_than_replaced(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    write_bundle(str(link), SIGNING, "space", WHOLE)
    assert link.is_symlink()
    assert read_all(path)[1] == WHOLE


def test_what_is_no_file_is_neither_replaced_nor_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place in (tmp_path, pipe, Path("/dev/null")):
        with pytest.raises(FileExistsError):
            write_bundle(str(place), SIGNING, "space", WHOLE)
    for place in (pipe, Path("/dev/null")):
        with pytest.raises(BundleCorrupt, match="not a regular file"):
            read_all(place)
    with pytest.raises(BundleCorrupt, match="not a regular file"):
        read_all(tmp_path)
    with pytest.raises(FileNotFoundError):
        write_bundle(str(tmp_path / "no folder" / "b"), SIGNING, "space", WHOLE)
