"""The Python of README and of the pages in docs runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from poolrt.cachestore import CacheStore

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = [
    (page.relative_to(ROOT), number)
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for number, _ in enumerate(BLOCK.findall(page.read_text("utf-8")))
]
BOUND_S = 60.0


@pytest.mark.parametrize(("page", "number"), EXAMPLES, ids=[f"{page} {number}" for page, number in EXAMPLES])
def test_an_example_runs(page: Path, number: int, tmp_path: Path) -> None:
    code = BLOCK.findall((ROOT / page).read_text("utf-8"))[number]
    home = tmp_path / "home"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "HOME": str(tmp_path), "POOLRT_HOME": str(home)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    CacheStore.connect(home=str(home)).down()
    assert done.returncode == 0, done.stderr
    # What an example prints is a shape, or whether the result is what it should be
    assert done.stdout
    assert "False" not in done.stdout
