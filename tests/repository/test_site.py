"""`make docs` in the thorough tier: every page is built without a warning, and the interface is in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import poolrt

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-d",
        str(tmp_path / "read"),
        "-c",
        "docs/site",
    ]
    done = subprocess.run(
        [*command, ".", str(tmp_path / "site")], cwd=ROOT, capture_output=True, text=True, check=False, timeout=280
    )
    assert (done.returncode, done.stderr) == (0, "")
    site = tmp_path / "site"
    pages = [path.relative_to(ROOT).with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")]
    assert all((site / page).exists() for page in pages)
    text = (site / "docs/site/api.html").read_text(encoding="utf-8")
    functions = [name for name in dir(poolrt.Graph) if not name.startswith("_")]
    assert [name for name in functions if f'id="poolrt.Graph.{name}"' not in text] == []
    names = [name for name in poolrt.__all__ if not isinstance(getattr(poolrt, name), ModuleType)]
    described = {name: f"workers.{name}" if name in poolrt.workers.__all__ else name for name in names}
    assert [name for name, place in described.items() if f'id="poolrt.{place}"' not in text] == []
    for name in (
        "Pool.submit",
        "Model.map",
        "Executor.run",
        "cachestore.CacheStore",
        "opencl.Program",
        "numba.install",
    ):
        assert f'id="poolrt.{name}"' in text
