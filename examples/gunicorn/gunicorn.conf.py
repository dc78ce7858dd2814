"""Four workers, which are ready when they have all kernels: the first of them compiles each one, the others wait for it."""

import os
from typing import Any

bind = os.environ.get("SERVICE_BIND", "127.0.0.1:8000")
workers = 4
# A worker says that it lives between requests only: longer than all compilations of a cold start, in seconds.
timeout = 120


def post_worker_init(worker: Any) -> None:
    """Prepare a worker before its first request."""
    import service

    service.prepare()
