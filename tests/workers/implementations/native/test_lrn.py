"""lrn on native kernels."""

from __future__ import annotations

import pytest

from tests.workers.cases import Case, cases
from tests.workers.native_runner import NativeRunner


@pytest.mark.parametrize("case", [*cases("lrn"), *cases("lrn", "blocked")], ids=str)
def test_native_result_is_right(case: Case, isa: str, native: NativeRunner) -> None:
    native.check(case, isa)
