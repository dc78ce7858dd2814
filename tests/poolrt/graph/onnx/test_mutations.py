"""Mutated models are imported or refused by the two documented errors, in bounded memory and time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from poolrt import ModelError, load_onnx
from tests.drills import model_files
from tests.drills.model_mutations import mutate
from tests.drills.model_seeds import seeds

ROOT = Path(__file__).resolve().parents[4]


def test_every_seed_is_imported_unmutated() -> None:
    assert len(seeds()) == 13
    for seed in seeds():
        wire, _ = load_onnx(seed).to_wire()
        assert wire["outputs"]


def test_a_mutation_is_the_same_for_the_same_number_and_few_are_alike() -> None:
    made = [mutate(number) for number in range(200)]
    assert made == [mutate(number) for number in range(200)]
    assert len(set(made)) > 180


@pytest.mark.parametrize(
    "mutations", [300, pytest.param(30_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)], id="many")]
)
def test_mutated_models_are_imported_or_refused(mutations: int) -> None:
    command = [sys.executable, "-m", "tests.drills.model_files", "--json", "--mutations", str(mutations)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    found = json.loads(done.stdout)
    assert (found["broken"], done.returncode) == ([], 0)
    assert found["mutations"] == sum(found["outcomes"].values()) == mutations
    assert {"imported", "ModelError", "UnsupportedNode"} <= set(found["outcomes"])
    assert set(found["outcomes"]) <= {"imported", "imported, refused by a pass", "ModelError", "UnsupportedNode"}


def test_another_error_and_a_message_of_two_lines_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(content: bytes) -> None:
        raise KeyError("of a dictionary")

    monkeypatch.setattr(model_files, "load_onnx", fail)
    found = model_files.import_here(3, 7)
    assert found.outcomes == {"KeyError": 3}
    assert found.broken[0] == "mutation 7 raises KeyError: 'of a dictionary'"


def test_a_process_that_dies_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    (broken,) = model_files.drill(5).broken
    assert broken.startswith("mutation 0 raises a process that ended with status 1")


def test_a_name_that_is_bytes_is_named() -> None:
    with pytest.raises(ModelError, match=r"the name b'.*' is not UTF-8"):
        load_onnx(mutate(414527554))
