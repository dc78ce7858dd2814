"""Numba's own tests that cannot pass with another cache, each with the reason, read from its source."""

from __future__ import annotations

from typing import Final

EXCLUDED: Final = {
    "TestCache.test_nbi_reproducible_after_touch": "reads the index file",
    "TestCacheFileCollision.test_file_location": "reads the path of the cache's file",
    "TestCacheFileCollision.test_no_collision": "counts lines of the log about the cache's files",
    "TestCacheWithCpuSetting.test_user_set_cpu_features": "reads the index file",
    "TestCacheWithCpuSetting.test_user_set_cpu_name": "reads the index file",
    "TestCache.test_recompile": "expects stale code: of Z = 1 while Z is 10, then of Z = 10 in a module with Z = 1",
    "TestGUfuncCacheTest.test_filename_prefix": "reads the names of the cache's files",
}
#: If functions share the store that ask for no cache.
EXCLUDED_WITH_ALL: Final = {
    "TestLiftObj.test_objmode_jitclass": "expects no warning of Numba, which warns that a compiled class is not cached",
    "TestOverloadMethodCaching.test_caching_overload_method": "expects a hit for a type that lower_builtin adds",
}
#: If another run of the same tests has filled the store.
EXCLUDED_WITH_HOME: Final = {
    "TestNoRetryFailedSignature.test_error_count": "counts how often Numba compiles",
}
