"""Targets of the CPU: sets of features, all of which a host must have to run code."""

from __future__ import annotations

import itertools

import pytest

from poolrt.workers.desc.codec import decode, encode
from poolrt.workers.engines.isa import cpu_flags, extensions_of, host_extensions, long_moves, may_use_tiles
from poolrt.workers.engines.target import EXTENSIONS, ISA_LEVELS, Target, cpu_target, host_isa

LEVELS = list(ISA_LEVELS)


def features(level: str) -> frozenset[str]:
    """Return the features in /proc/cpuinfo of a host of a level, and one that belongs to no level."""
    return frozenset({"fpu"}).union(*(ISA_LEVELS[known] for known in LEVELS[: LEVELS.index(level) + 1]))


def target(level: str, extensions: tuple[str, ...] = ()) -> Target:
    return Target("cpu", "native", (("isa", level), ("extensions", " ".join(extensions)))[: 1 + bool(extensions)])


@pytest.mark.parametrize("level", LEVELS)
def test_a_host_has_the_level_whose_features_it_lists(level: str) -> None:
    assert host_isa(features(level)) == level
    # Features of higher levels do not make up for one that is missing
    everything = features(LEVELS[-1])
    for missing in ISA_LEVELS[level]:
        lower = LEVELS[: LEVELS.index(level)]
        if lower:
            assert host_isa(everything - {missing}) == lower[-1]
        else:
            with pytest.raises(RuntimeError, match="x86-64"):
                host_isa(everything - {missing})


def test_code_runs_on_a_host_that_has_each_feature_it_was_made_for() -> None:
    have = {target(level): features(level) for level in LEVELS}
    for level in LEVELS:
        for count in range(1, len(extensions_of(level)) + 1):
            for some in itertools.combinations(extensions_of(level), count):
                have[target(level, some)] = features(level) | {*some}
    for host, needed in itertools.product(have, have):
        assert host.serves(needed) == (have[needed] <= have[host]), (host, needed)


def test_extensions_of_tiles_need_the_consent_of_the_system() -> None:
    # Given a processor that lists all extensions
    found = host_extensions(frozenset(EXTENSIONS), LEVELS[-1])
    # Then those of AMX are there if the system lets this process use tiles, which it does not without the processor's
    every = extensions_of(LEVELS[-1])
    without = tuple(name for name in every if not name.startswith("amx_"))
    assert found == (every if may_use_tiles() else without)
    assert may_use_tiles() <= ("amx_tile" in cpu_flags())
    assert host_extensions(frozenset({"avx512_bf16"}), LEVELS[-1]) == ("avx512_bf16",)


def test_rows_are_copied_by_one_instruction_where_that_was_measured() -> None:
    def of(vendor: str, family: str) -> int:
        return long_moves({b"vendor_id": vendor, b"cpu family": family})

    assert [of("AuthenticAMD", family) for family in ("23", "25", "26", "27", "?")] == [
        *[2**63 - 1] * 2,
        8192,
        8192,
        2**63 - 1,
    ]
    assert of("GenuineIntel", "6") == long_moves({}) == 2**63 - 1
    assert long_moves() in (8192, 2**63 - 1)


def test_an_extension_is_of_one_level() -> None:
    assert sorted(name for level in LEVELS for name in extensions_of(level)) == sorted(EXTENSIONS)
    flags = frozenset(EXTENSIONS)
    assert host_extensions(flags, "x86-64-v3") == ("avx_vnni",)
    assert host_extensions(flags, "x86-64-v2") == ()


def test_code_for_extensions_of_several_levels_lacks_only_those_of_its_own() -> None:
    either, tiles = ("avx512_vnni", "avx_vnni"), ("avx512_vnni", "amx_int8")
    assert target("x86-64-v3", ("avx_vnni",)).lack_of(either) is None
    assert target("x86-64-v4", ("avx512_vnni",)).lack_of(either) is None
    assert target("x86-64-v3").lack_of(either) == "the host has no avx_vnni"
    assert target("x86-64-v4", ("avx512_bf16",)).lack_of(either) == "the host has no avx512_vnni"
    assert target("x86-64-v2").lack_of(either) == "the host has no avx512_vnni, avx_vnni"
    assert target("x86-64-v3", ("avx_vnni",)).lack_of(tiles) == "the host has no amx_int8, avx512_vnni"
    assert target("x86-64-v2").lack_of(()) is None


def test_code_for_a_device_runs_only_on_such_a_device() -> None:
    device = Target("opencl", "opencl", (("fp64", "True"), ("name", "a")))
    other = Target("opencl", "opencl", (("fp64", "True"), ("name", "b")))
    assert device.serves(Target("opencl", "opencl", device.device))
    assert not device.serves(other)
    assert not device.serves(target(LEVELS[0]))
    assert not target(LEVELS[-1]).serves(device)


def test_this_host_serves_what_is_made_for_it_and_for_weaker_ones() -> None:
    host = cpu_target("")
    assert host.isa == host_isa()
    for level in LEVELS[: LEVELS.index(host.isa) + 1]:
        limited = cpu_target(level)
        assert host.serves(limited)
        assert (limited.isa, limited.extensions) == (level, ())


def test_targets_survive_a_message() -> None:
    for each in (
        cpu_target(),
        target(LEVELS[-1], extensions_of(LEVELS[-1])),
        Target("opencl", "opencl", (("name", "a"),)),
    ):
        assert decode(Target, encode(each)) == each
