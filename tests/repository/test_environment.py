"""The environment is read in few places: settings, the store's options, and the level of verbose lines."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from .environment import ANY, constants, lookups

ROOT = Path(__file__).resolve().parents[2]
#: Each file that may look up variables of poolrt -> which ones; `ANY` if the code computes their names.
#: The store stands alone: it cannot ask the settings above it. A process without settings writes verbose lines, too.
READERS = {
    "cachestore/place.py": {"POOLRT_CONFIG", ANY},
    "cachestore/settings_file.py": {"POOLRT_CONFIG"},
    "poolrt/settings.py": {"POOLRT_CONFIG", ANY},
    # Numba's variables, which can change the code of a kernel
    "poolrt/kernels/kernel.py": {ANY},
    "workers/verbose/output.py": {"POOLRT_VERBOSE"},
    # The limit of instructions holds for engines of processes that have no settings
    "workers/engines/isa.py": {"POOLRT_CONFIG", "POOLRT_MAX_CPU_ISA"},
}


def _production() -> dict[str, str]:
    found = {}
    for floor in ("poolrt", "workers", "cachestore"):
        # os.walk does not follow the links, so that each file is met once.
        for place, _, names in os.walk(ROOT / floor):
            for name in names:
                if name.endswith(".py"):
                    path = Path(place, name)
                    found[str(path.relative_to(ROOT))] = path.read_text(encoding="utf-8")
    return found


def test_only_settings_options_of_stores_instructions_and_verbose_look_up_poolrts_variables() -> None:
    code = _production()
    # A constant of any other module counts as any variable.
    named = [source for source in code.values() if "POOLRT_" in source]
    known = {name: texts for source in named for name, texts in constants(ast.parse(source)).items()}
    found = {
        path: {name for name in lookups(source, known) if name == ANY or name.startswith("POOLRT_")}
        for path, source in code.items()
    }
    assert {path: names for path, names in found.items() if names} == READERS


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.environ['POOLRT_A']",
        "import os as system\nsystem.environ.get('POOLRT_A', '0')",
        "from os import environ\nprint(environ['POOLRT_A'])",
        "from os import environ as variables\nvariables.pop('POOLRT_A', None)",
        "from os import getenv as variable\nvariable('POOLRT_A')",
        "import os\nos.getenvb(b'POOLRT_A')",
        "import os\nNAME: Final = 'POOLRT_A'\ndef f():\n    import os as o\n    return o.getenv(NAME)",
        "import os\ndef f(given=None):\n    env = os.environ if given is None else given\n    return env.get('POOLRT_A')",
        "import os\nself.env = given or os.environ\nself.env['POOLRT_A']",
        "import os\nlook = os.environ.get\nlook('POOLRT_A')",
        "import os\nwanted = 'POOLRT_A' in os.environ",
        "import os\nNAMES = ('POOLRT_A',)\nfound = [os.environ[name] for name in NAMES]",
        "import os\nfrom .output import VARIABLE as name\nos.environ[name]",
    ],
)
def test_a_look_up_is_found_however_it_is_written(code: str) -> None:
    assert lookups(code, {"VARIABLE": frozenset({"POOLRT_A"})}) == {"POOLRT_A"}


@pytest.mark.parametrize(
    "use", ["os.environ[name]", "os.getenv(f'POOLRT_{name}')", "sorted(os.environ)", "os.environ.items()"]
)
def test_a_look_up_of_a_computed_name_counts_as_one_of_any_variable(use: str) -> None:
    assert lookups(f"import os\ndef f(name):\n    return {use}") == {ANY}


@pytest.mark.parametrize(
    "use",
    [
        "os.environ['POOLRT_A'] = '1'",
        "del os.environ['POOLRT_A']",
        "os.environ.update(more)",
        "start({**os.environ, 'POOLRT_A': '1'})",
        "environ.get('POOLRT_A')",
    ],
)
def test_what_sets_variables_for_others_looks_up_none(use: str) -> None:
    assert lookups(f"import os\n{use}") == set()
