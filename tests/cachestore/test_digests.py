"""Digests: the same bytes from CPython's own SHA-256 and from OpenSSL's, and none of it loaded without need."""

from __future__ import annotations

import hashlib
import hmac
import sys
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore import digests
from poolrt.cachestore.digests import LONG
from poolrt.cachestore.signing import SigningKey
from tests.workers.own_process import python

MATERIAL = bytes(range(40)) + b"more than a block, which is hashed first" * 2


def _without_openssl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "_hashlib")


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("size", [0, 1, 64, LONG - 1, LONG, LONG + 1, 3 * LONG])
def test_digests_and_signatures_are_those_of_the_standard(
    monkeypatch: pytest.MonkeyPatch, loaded: bool, size: int
) -> None:
    message = bytes(number % 251 for number in range(size))
    if not loaded:
        _without_openssl(monkeypatch)
    for text in (message, memoryview(message)):
        assert digests.sha256(text).hexdigest() == hashlib.sha256(message).hexdigest()
    for material in (MATERIAL, MATERIAL[:20]):
        key = SigningKey(material)
        tag = hmac.digest(material, message, "sha256")
        # Twice: the first long message makes OpenSSL's state
        assert key.sign(message) == key.sign(memoryview(message)) == tag
        assert key.matches(message, tag)
        assert not key.matches(message + b"\0", tag)


def test_a_python_without_its_own_module_uses_hashlib(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(digests, "import_module", missing)
    assert digests._find_own() is digests.openssl_sha256


def test_short_messages_load_no_openssl_and_a_long_one_does() -> None:
    code = (
        "import sys; from poolrt.cachestore.signing import SigningKey; from poolrt.cachestore.key import Key\n"
        "key = SigningKey(bytes(range(40))); Key({'a': 1}).digest\n"
        "for size in (65536, 65537): key.sign(bytes(size)); print('_hashlib' in sys.modules)"
    )
    assert python(code).split() == ["False", "True"]


def test_prebuilt_parts_and_names_of_constants_load_no_openssl(tmp_path: Path) -> None:
    code = (
        "import sys; from poolrt.cachestore.key import Key\n"
        "from poolrt.cachestore.prebuilt import PrebuiltFile, write_prebuilt\n"
        "from poolrt.graph.constant_name import name_constant\n"
        f"key, path = Key({{'part': 1}}), {str(tmp_path / 'parts')!r}\n"
        "write_prebuilt(path, {key.digest: b'part'}, {})\n"
        "print(PrebuiltFile(path).read(key), len(name_constant('layout', bytes(32))), '_hashlib' in sys.modules)"
    )
    assert python(code).split() == ["b'part'", "64", "False"]
