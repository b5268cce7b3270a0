"""What a user is told until the first trial starts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.experiment.display.terminals import readable, terminal

PROGRAM = """
import sys
import experiment
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
experiment.launch(spark, lambda x: x, {"x": [1]}, preload=(), logdir=sys.argv[1])
spark.stop()
"""
LATE = """#!/bin/sh
until [ -e {go} ] || ! kill -0 $PPID; do sleep .1; done
exec {python} "$@"
"""


@pytest.mark.slow
@pytest.mark.contract
def test_in_local_mode_the_progress_says_that_workers_start(tmp_path):
    """The worker starts once it has been said."""
    go, late = tmp_path / "go", tmp_path / "python"
    late.write_text(LATE.format(go=go, python=sys.executable))
    late.chmod(0o700)
    environment = os.environ | {"PYSPARK_PYTHON": str(late), "TERM": "xterm-256color"}
    with terminal(columns=200) as (screen, end):
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "runs")],
            stdin=end,
            stdout=end,
            stderr=end,
            env=environment,
        )
        shown = b""
        try:
            while program.poll() is None or readable(screen):
                if readable(screen):
                    shown += os.read(screen, 1 << 16)
                if b": Python workers start; asked for 1 slot of 1 core" in shown:
                    go.touch()
        finally:
            program.kill()
    assert program.wait() == 0, shown.decode(errors="replace")
    assert b"no slot yet" in shown
    assert b"no executor" not in shown
