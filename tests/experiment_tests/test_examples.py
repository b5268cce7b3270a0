"""The examples, run as the README says, with small sizes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = {
    "grid_search.py": (["--epochs", "1"], 6),
    "evolutionary_search.py": (["--epochs", "1", "--popsize", "4", "--generations", "1"], 8),
}
BIN = Path(sys.executable).parent


def run(command, tmp_path, example):
    """Run a command without an activated environment; return its output."""
    arguments, _ = EXAMPLES[example]
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("VIRTUAL_ENV", "PYTHONPATH")
    }
    environment["PATH"] = os.pathsep.join(
        part for part in os.environ["PATH"].split(os.pathsep) if part != str(BIN)
    )
    if "spark-submit" in command[0]:
        environment["PYSPARK_PYTHON"] = sys.executable
    script = str(ROOT / "examples" / example)
    output = subprocess.run(
        [*command, script, *arguments, "--logdir", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    assert output.returncode == 0, output.stderr[-4000:]
    return output.stdout


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize(
    "command",
    [[sys.executable], [str(BIN / "spark-submit"), "--master", "local[2]"]],
    ids=["python", "spark-submit"],
)
def test_an_example_prints_its_table_and_how_to_watch(tmp_path, example, command):
    output = run(command, tmp_path, example)
    _, trials = EXAMPLES[example]
    assert output.count(" finished ") == trials
    assert "Best: TrialResult(" in output
    watch = output.splitlines()[-1]
    run_folder = Path(watch.split(" tensorboard ")[1])
    assert watch.startswith("Look at it: python -m experiment tensorboard ")
    assert len(list((run_folder / "trials").iterdir())) == trials
