"""A process that requests entries of a store; its job is one JSON object on its command line.

It prints `ready`, waits for a line on its standard input, works through its keys, and prints one JSON object: for each
key the source and the payload's SHA-256, or the error. Each creation appends a line to `log`, which counts creations
independently of the store.

    options   arguments of CacheStore.connect
    keys      list of dictionaries of fields
    log       path of the log of creations
    create_s  how long a creation takes
    size      bytes of a payload
    fail      the creator raises ValueError with this text
    announce  print `creating` when a creation begins
    hold      a creation goes on until standard input has another line, or ends
    timeout   of each call
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from typing import Any

from poolrt.cachestore import CacheStore, Key, StoreError


class CompilerError(ValueError):
    """A failure with a compiler's log."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.log = f"log of {message}"


def payload_of(fields: dict[str, Any], size: int) -> bytes:
    """Return the one right payload of a key."""
    seed = hashlib.sha256(Key(fields).canonical).digest()
    return (seed * (size // len(seed) + 1))[:size]


def main() -> None:
    """Do the job on the command line."""
    job = json.loads(sys.argv[1])
    with CacheStore.connect(**job["options"]) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        results = []
        for fields in job["keys"]:

            def create(fields: dict[str, Any] = fields) -> bytes:
                with open(job["log"], "a") as log:
                    log.write(f"{os.getpid()} {json.dumps(fields)}\n")
                if job.get("announce"):
                    print("creating", flush=True)
                if job.get("hold"):
                    sys.stdin.readline()
                time.sleep(job.get("create_s", 0.0))
                if "fail" in job:
                    raise CompilerError(job["fail"])
                return payload_of(fields, job.get("size", 1000))

            begin = time.monotonic()
            try:
                outcome = store.fetch_or_create(Key(fields), create, job.get("timeout", 30.0))
                result: dict[str, Any] = {
                    "source": outcome.source,
                    "sha256": hashlib.sha256(outcome.value).hexdigest(),
                }
            except StoreError as error:
                result = {"error": error.to_wire()}
            results.append({**result, "seconds": time.monotonic() - begin})
        heavy = sorted(
            {"numba", "llvmlite", "redis", "asyncio", "logging", "poolrt.cachestore.redis"} & set(sys.modules)
        )
        print(json.dumps({"results": results, "heavy": heavy}), flush=True)


if __name__ == "__main__":
    main()
