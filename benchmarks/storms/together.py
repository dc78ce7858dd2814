"""Processes of a storm that begin at one moment: each prints ``ready``, waits for a line, and prints one JSON object."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

LIMIT_S: Final = 300.0


def run_together(
    program: str, arguments: list[str], processes: int, environment: Mapping[str, str]
) -> list[dict[str, Any]] | str:
    """Run a program of this folder several times at once; return what each printed, or its reason why it cannot run here."""
    command = [sys.executable, str(Path(__file__).with_name(program)), *arguments]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(processes)
    ]
    said = {child.stdout.readline().strip() if child.stdout is not None else "" for child in children}
    for child in children:
        if child.stdin is not None and "ready" in said:
            child.stdin.write("\n")
            child.stdin.flush()
    texts = [child.communicate(timeout=LIMIT_S)[0] for child in children]
    if len(said) != 1 or any(child.returncode for child in children):
        raise SystemExit(f"the processes of a storm have failed: {command}")
    return [json.loads(text) for text in texts] if "ready" in said else said.pop()
