"""Options: arguments, then environment, then defaults; what cannot be used is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolrt.cachestore.options import StoreOptions, options_from_environment

VARIABLES = {
    "POOLRT_REDIS_URL": "redis://somewhere",
    "POOLRT_NAMESPACE": "ns",
    "POOLRT_HOME": "/a/home",
    "POOLRT_KEY_FILE": "/a/key",
    "POOLRT_PRIMITIVE_CACHE_CAPACITY": "12",
    "POOLRT_PRIMITIVE_CACHE_BYTES": "3456",
    "POOLRT_REDIS_SERVER": "/a/server",
    "POOLRT_READ_ONLY": "yes",
    "POOLRT_PREBUILT": "/a/file",
}


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without any of the variables."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_without_arguments_and_variables_there_are_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/a/cache")
    options = options_from_environment()
    assert options == StoreOptions(home="/a/cache/poolrt")
    assert (options.capacity, options.capacity_bytes, options.url, options.key_file) == (1024, 0, None, None)


def test_variables_come_before_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    assert options_from_environment() == StoreOptions(
        home="/a/home",
        url="redis://somewhere",
        namespace="ns",
        key_file="/a/key",
        capacity=12,
        capacity_bytes=3456,
        redis_server="/a/server",
        read_only=True,
        prebuilt="/a/file",
    )


def test_arguments_come_before_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    options = options_from_environment(
        "redis://other", "mine", str(tmp_path), "/k", 0, 0, "/s", False, "none", lease_s=2.5
    )
    mine = StoreOptions(
        str(tmp_path), "redis://other", "mine", "/k", 0, 0, redis_server="/s", prebuilt="none", lease_s=2.5
    )
    assert options == mine


@pytest.mark.parametrize("text", ["many", "-1", "1.5"])
def test_a_variable_that_is_no_capacity_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("POOLRT_PRIMITIVE_CACHE_CAPACITY", text)
    with pytest.raises(ValueError, match="POOLRT_PRIMITIVE_CACHE_CAPACITY"):
        options_from_environment()


@pytest.mark.parametrize(
    "name", ["", "..", "a/b", "redis", "signing.key", ".hidden", "-x", "a" * 65, "ä", "a}b", "a\n"]
)
def test_a_namespace_that_is_no_safe_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="namespace"):
        StoreOptions(home="/h", namespace=name)


@pytest.mark.parametrize(("text", "meant"), [("", False), ("0", False), ("No", False), ("1", True), ("TRUE", True)])
def test_read_only_is_a_word_for_true_or_false(monkeypatch: pytest.MonkeyPatch, text: str, meant: bool) -> None:
    monkeypatch.setenv("POOLRT_READ_ONLY", text)
    assert options_from_environment().read_only is meant


def test_any_other_word_for_read_only_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOLRT_READ_ONLY", "perhaps")
    with pytest.raises(ValueError, match="POOLRT_READ_ONLY is 'perhaps'"):
        options_from_environment()


def test_times_and_capacities_must_make_sense() -> None:
    with pytest.raises(ValueError, match="more than 0 seconds"):
        StoreOptions(home="/h", lease_s=0.0)
    with pytest.raises(ValueError, match="expect 0 or more"):
        StoreOptions(home="/h", capacity=-1)


def test_a_capacity_that_is_no_integer_is_refused_by_name() -> None:
    for value in (True, 1.5, "3"):
        for name in ("capacity", "capacity_bytes"):
            with pytest.raises(ValueError, match=rf"^{name}: expect 0 or more, got "):
                StoreOptions("/h", **{name: value})  # type: ignore[arg-type]
