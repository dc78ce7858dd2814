"""Settings: where a value comes from, what is refused, and that the files in configs/ are really read."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore.options import StoreOptions, options_from_environment
from poolrt.settings import Settings, SettingsError, env_name, section, unknown_variables

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"


def _write(folder: Path, text: str) -> Path:
    path = folder / "x.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_an_argument_wins_over_the_environment_which_wins_over_the_file_which_wins_over_the_default(
    tmp_path: Path,
) -> None:
    config = _write(tmp_path, "[cache]\ncapacity = 3\n")
    env = {"POOLRT_PRIMITIVE_CACHE_CAPACITY": "2"}
    assert Settings.load(environ={}).capacity == 1024
    assert Settings.load(config, environ={}).capacity == 3
    assert Settings.load(config, environ=env).capacity == 2
    assert Settings.load(config, environ=env, capacity=1).capacity == 1


def test_an_empty_variable_unsets_the_file_s_value(tmp_path: Path) -> None:
    config = _write(tmp_path, "[cache]\nredis_url = 'redis://redis:6379/0'\ncapacity = 3\n[pool]\nfunctions = false\n")
    empty = {"POOLRT_REDIS_URL": "", "POOLRT_PRIMITIVE_CACHE_CAPACITY": "", "POOLRT_FUNCTIONS": ""}
    assert Settings.load(config, environ=empty) == Settings.load(environ={})
    assert Settings.load(config, environ=empty, capacity=1).capacity == 1
    # A file that is named by a variable is unset as a whole
    assert Settings.load(environ={"POOLRT_CONFIG": ""}) == Settings.load(environ={})


def test_the_home_folder_may_name_the_user_s_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / str(os.getuid())
    for settings in (
        Settings.load(environ={"POOLRT_HOME": f"{tmp_path}/{{uid}}"}),
        Settings.load(home=f"{tmp_path}/{{uid}}"),
    ):
        assert settings.home_path == own
        assert settings.store_arguments()["home"] == str(own)
    # And so in a program that opens the store without settings
    monkeypatch.setenv("POOLRT_HOME", f"{tmp_path}/{{uid}}")
    assert options_from_environment().home == str(own)


def test_an_argument_of_none_and_an_empty_variable_count_as_not_given() -> None:
    assert Settings.load(environ={"POOLRT_WORKERS": ""}, workers=None).workers == 0


def test_poolrt_config_names_the_file(tmp_path: Path) -> None:
    config = _write(tmp_path, "[pool]\nworkers = 5\n")
    assert Settings.load(environ={"POOLRT_CONFIG": str(config)}).workers == 5


def test_the_written_out_defaults_are_the_built_in_ones_and_complete() -> None:
    path = CONFIGS / "default.toml"
    assert Settings.load(path, environ={}) == Settings()
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    written = {(table, key) for table, entries in tables.items() for key in entries}
    assert written == {(section(knob.name), knob.name) for knob in fields(Settings)}


@pytest.mark.parametrize("name", sorted(path.name for path in CONFIGS.glob("*.toml")))
def test_every_file_in_configs_is_accepted_and_each_of_its_values_arrives(name: str) -> None:
    path = CONFIGS / name
    settings = Settings.load(path, environ={})
    for table, entries in tomllib.loads(path.read_text(encoding="utf-8")).items():
        for key, value in entries.items():
            assert section(key) == table
            if key.endswith("_bytes") and isinstance(value, str):
                number, unit = value.split()
                value = int(number) * {"MiB": 1024**2, "GiB": 1024**3}[unit]
            assert getattr(settings, key) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[cache]\ncapacity = 'abc'\n", "{path}: [cache] capacity: expected integer >= 0, got 'abc'"),
        ("[cache]\ncapacity = '7'\n", "{path}: [cache] capacity: expected integer >= 0, got '7'"),
        ("[cache]\ncapacity = -1\n", "{path}: [cache] capacity: expected integer >= 0, got -1"),
        ("[cache]\ncapacity = true\n", "{path}: [cache] capacity: expected integer >= 0, got True"),
        ("[pool]\nworkers = 1025\n", "{path}: [pool] workers: expected integer from 0 to 1024, got 1025"),
        ("[pool]\nengine = 'cuda'\n", "{path}: [pool] engine: expected 'cpu', 'opencl' or 'opencl:INDEX', got 'cuda'"),
        ("[cache]\nlease_s = nan\n", "{path}: [cache] lease_s: expected seconds from 0.1 to 600, got nan"),
        ("[log]\nprogress = 1\n", "{path}: [log] progress: expected true or false, got 1"),
        ("[pool]\narena_bytes = '9 apples'\n", "{path}: [pool] arena_bytes: expected number of bytes >= 1048576"),
        ("[cache]\ncapcity = 1\n", "{path}: [cache] capcity: no such setting; known: redis_url"),
        ("[cahce]\ncapacity = 1\n", "{path}: [cahce]: no such table; known: cache, log, pool"),
        ("pool = 3\n", "{path}: pool: expected a table [pool], got 3"),
        ("[cache\n", "{path}: is not TOML: "),
    ],
)
def test_a_wrong_file_is_refused_naming_file_table_and_key(tmp_path: Path, text: str, message: str) -> None:
    path = _write(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        Settings.load(path, environ={})
    assert str(caught.value).startswith(message.format(path=path))


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    with pytest.raises(SettingsError, match="cannot be read: No such file") as caught:
        Settings.load(path, environ={})
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("POOLRT_PRIMITIVE_CACHE_CAPACITY", "many"),
        ("POOLRT_PRIMITIVE_CACHE_BYTES", "-1"),
        ("POOLRT_THREADS", "1.5"),
        ("POOLRT_NAMESPACE", "a b"),
        ("POOLRT_REDIS_URL", "localhost:6379"),
        ("POOLRT_FUNCTIONS", "maybe"),
        ("POOLRT_MAX_CPU_ISA", "avx512"),
        ("POOLRT_LEASE_S", "inf"),
    ],
)
def test_a_wrong_variable_is_refused_by_its_name(variable: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.load(environ={variable: value})
    assert str(caught.value).startswith(f"{variable}: expected ")
    assert repr(value) in str(caught.value)


def test_variables_are_read_as_the_type_of_their_setting() -> None:
    env = {
        "POOLRT_PRIMITIVE_CACHE_BYTES": "2GiB",
        "POOLRT_LEASE_S": "1.5",
        "POOLRT_FUNCTIONS": "no",
        "POOLRT_REDIS_URL": "unix:///run/redis.sock",
    }
    settings = Settings.load(environ=env)
    assert (settings.capacity_bytes, settings.lease_s, settings.functions) == (2 * 1024**3, 1.5, False)
    assert settings.redis_url == "unix:///run/redis.sock"


def test_the_stores_own_defaults_are_those_of_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Given the store's way to its options and the settings' way, both without arguments or variables
    for knob in fields(Settings):
        monkeypatch.delenv(env_name(knob.name), raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    expected = options_from_environment()
    # Then they lead to the same options
    assert StoreOptions(**Settings.load(environ={}).store_arguments()) == expected


#: Settings of the store, and a value of each as a variable has it.
_OF_THE_STORE = [
        ("redis_url", "unix:///run/r.sock"), ("redis_server", "/a/server"), ("server_idle_s", "12.5"), ("namespace", "ns"),
        ("read_only", "yes"), ("prebuilt", "none"), ("home", "/a/home"), ("key_file", "/a/key"), ("capacity", "7"),
        ("capacity_bytes", "3 MiB"), ("memory_bytes", "5MiB"), ("files_capacity", "11"), ("files_bytes", "1 gib"),
        ("set_store_capacity", "TRUE"), ("store_capacity", "13"), ("store_capacity_bytes", "17"), ("lease_s", "2.5"),
        ("creation_limit_s", "30"), ("io_timeout_s", "0.25"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), _OF_THE_STORE)
def test_a_variable_means_the_same_for_a_pool_and_for_a_store_in_a_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, text: str
) -> None:
    for knob in fields(Settings):
        monkeypatch.delenv(env_name(knob.name), raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = options_from_environment()
    monkeypatch.setenv(env_name(name), text)
    options = options_from_environment()
    assert options != before
    assert options == StoreOptions(**Settings.load().store_arguments())


@pytest.mark.parametrize(("name", "text"), _OF_THE_STORE)
def test_the_file_means_the_same_for_a_pool_and_for_a_store_in_a_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, text: str
) -> None:
    for knob in fields(Settings):
        monkeypatch.delenv(env_name(knob.name), raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    without = options_from_environment()
    is_text = isinstance(getattr(Settings(), name), str) or name.endswith("_bytes")
    plain = {"yes": "true", "TRUE": "true"}.get(text, text)
    config = _write(tmp_path, f"[cache]\n{name} = {json.dumps(text) if is_text else plain}\n")
    monkeypatch.setenv("POOLRT_CONFIG", str(config))
    options = options_from_environment()
    assert options != without
    assert options == StoreOptions(**Settings.load().store_arguments())
    # Given an empty variable, then the file counts as one without that value
    monkeypatch.setenv(env_name(name), "")
    assert options_from_environment() == StoreOptions(**Settings.load().store_arguments()) == without


@pytest.mark.parametrize(
    "text",
    [
        "[cache]\nlease_s = '3'\n",
        "[cache]\ncapacity = true\n",
        "[cache]\ncapacity = -1\n",
        "[cache]\nread_only = 1\n",
        "[cache]\nhome = 3\n",
        "[cache]\nfiles_bytes = 'much'\n",
        "cache = 3\n",
        "[cache\n",
        None,
    ],
)
def test_a_wrong_file_is_refused_with_its_path_by_both(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None
) -> None:
    config = tmp_path / "none.toml" if text is None else _write(tmp_path, text)
    monkeypatch.setenv("POOLRT_CONFIG", str(config))
    for knob in fields(Settings):
        monkeypatch.delenv(env_name(knob.name), raising=False)
    for read in (Settings.load, options_from_environment):
        with pytest.raises(ValueError, match=f"^{re.escape(str(config))}: "):
            read()


def test_an_argument_for_the_built_in_way_comes_before_variable_and_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = _write(tmp_path, "[cache]\nredis_server = '/a/server'\nkey_file = '/a/key'\n")
    monkeypatch.setenv("POOLRT_CONFIG", str(config))
    monkeypatch.setenv("POOLRT_REDIS_URL", "redis://somewhere")
    monkeypatch.delenv("POOLRT_KEY_FILE", raising=False)
    settings = Settings.load(redis_url="", key_file="", redis_server="")
    options = options_from_environment(**settings.store_arguments())
    assert (options.url, options.key_file, options.redis_server) == (None, None, None)


def test_the_user_s_home_folder_is_found_in_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("HOME", "KEY_FILE", "REDIS_SERVER"):
        monkeypatch.setenv(f"POOLRT_{name}", f"~/{name}")
    options = options_from_environment()
    assert (options.home, options.key_file) == (str(tmp_path / "HOME"), str(tmp_path / "KEY_FILE"))
    assert options.redis_server == str(tmp_path / "REDIS_SERVER")
    assert options == StoreOptions(**Settings.load().store_arguments())
    monkeypatch.setenv("POOLRT_HOME", "~nobody-has-this-name/x")
    for read in (Settings.load, options_from_environment):
        with pytest.raises(ValueError, match="home folder"):
            read()


def test_every_setting_of_the_store_is_compared() -> None:
    of_the_store = {knob.name for knob in fields(Settings) if knob.metadata["section"] == "cache"} - {
        "constant_files_bytes"
    }
    assert {name for name, _ in _OF_THE_STORE} == of_the_store


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("POOLRT_LEASE_S", "soon"), ("POOLRT_LEASE_S", "0"), ("POOLRT_IO_TIMEOUT_S", "nan"), ("POOLRT_CREATION_LIMIT_S", "inf"),
        ("POOLRT_SERVER_IDLE_S", "-1"), ("POOLRT_FILES_BYTES", "2 TB"), ("POOLRT_MEMORY_BYTES", "-1"),
        ("POOLRT_STORE_CAPACITY", "1.5"), ("POOLRT_SET_STORE_CAPACITY", "perhaps"),
    ],
)  # fmt: skip
def test_a_store_in_a_process_refuses_by_name_what_is_no_value(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(ValueError, match=variable):
        options_from_environment()


def test_every_setting_has_its_own_variable_and_the_documented_names_are_among_them() -> None:
    names = [env_name(knob.name) for knob in fields(Settings)]
    assert len(set(names)) == len(names)
    documented = {
        "REDIS_URL",
        "NAMESPACE",
        "HOME",
        "KEY_FILE",
        "PRIMITIVE_CACHE_CAPACITY",
        "PRIMITIVE_CACHE_BYTES",
        "VERBOSE",
    }
    assert {f"POOLRT_{name}" for name in documented} <= set(names)


def test_an_argument_that_is_no_setting_is_refused() -> None:
    with pytest.raises(SettingsError, match="argument: wrokers: no such setting"):
        Settings.load(environ={}, wrokers=2)


def test_a_misspelt_variable_is_reported_and_a_known_one_is_not() -> None:
    assert unknown_variables({"POOLRT_WROKERS": "2", "POOLRT_WORKERS": "2", "POOLRT_CONFIG": "", "HOME": "/"}) == [
        "POOLRT_WROKERS"
    ]


def test_reading_settings_imports_nothing_heavy() -> None:
    # Given a fresh interpreter, when settings are read, then none of these has been loaded.
    heavy = "numpy numba llvmlite redis pyopencl rich onnx asyncio tomllib importlib.metadata"
    code = (
        "import sys; from poolrt.settings import Settings; Settings.load(environ={});"
        f"print(sorted(set('{heavy}'.split()) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("text", ["a\0b", "a\udcff"])
@pytest.mark.parametrize("name", ["home", "key_file", "socket", "redis_server"])
def test_a_path_that_is_no_text_is_refused(name: str, text: str) -> None:
    with pytest.raises(SettingsError, match="expected path as UTF-8 text without NUL"):
        Settings.load(environ={}, **{name: text})


def test_a_home_folder_that_is_not_utf8_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/tmp/h\udcff")
    with pytest.raises(SettingsError, match=r"^HOME: the folder .* is not UTF-8: set POOLRT_HOME"):
        Settings.load(environ={})
    assert Settings.load(environ={}, home="/tmp/h").home_path == Path("/tmp/h")


def test_a_user_without_a_home_folder_gets_the_remedy() -> None:
    with pytest.raises(SettingsError, match="this user has no home folder: set POOLRT_HOME"):
        Settings.load(environ={}, home="~nobody-of-that-name/x")


@pytest.mark.parametrize("value", ["0", "-1", "1 EiB", "4096", "text", str(2**62), str(2**80), "9" * 5000])
def test_an_absurd_arena_is_refused(value: str) -> None:
    with pytest.raises(SettingsError, match=r"^POOLRT_ARENA_BYTES: expected number of bytes >= 1048576 and <= "):
        Settings.load(environ={"POOLRT_ARENA_BYTES": value})


@pytest.mark.parametrize("name", ["capacity", "capacity_bytes", "memory_bytes", "files_bytes", "retries"])
def test_a_number_that_no_message_can_hold_is_refused(name: str) -> None:
    arguments: dict[str, Any] = {name: 2**63}
    with pytest.raises(SettingsError):
        Settings.load(environ={}, **arguments)


def test_a_settings_file_whose_name_has_nul_is_refused() -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        Settings.load("a\0b", environ={})


@pytest.mark.parametrize("path", ["a\0b", "a\udcff"])
def test_a_store_refuses_a_path_that_is_no_text(path: str) -> None:
    with pytest.raises(ValueError, match="expect UTF-8 text without NUL"):
        StoreOptions(home=path)
