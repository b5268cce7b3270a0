"""Record again the run that later versions have to read.

    .venv/bin/python -m tests.experiment.run_files.recording

Only a change of the format of runs (`experiment.run_files.format.FORMAT`) is a reason to; the run
of the format before stays then, in a folder of its own.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

import experiment
from experiment.run_files.format import FORMAT
from experiment.run_files.journal import encode_line

RECORDED = Path(__file__).parent / f"run_of_format_{FORMAT}"
"""The run's folder, without event files and marks of drivers, which name the host."""

BOUNDS = {"x": [-1.0, 1.0], "units": [1, 8]}
_KEPT = (
    "manifest.json",
    "result.json",
    "journal/*.jsonl",
    "trials/*/trial.json",
    "trials/*/outcome.json",
    "trials/*/stdout.log",
)


def train(x: float, units: int) -> dict[str, float]:
    """Report a step, fail with many units, and end with the square of x."""
    print(f"x is {x}")
    experiment.report(step=1, loss=x * x)
    if units > 6:
        raise ValueError("too many units")
    return {"loss": x * x, "size": float(units)}


def search(spark: Any, generations: int, **settings: Any) -> experiment.Result:
    """Run or resume the search, so that every kind of record is written."""
    return experiment.evolutionary_search(
        spark,
        train,
        BOUNDS,
        direction="min",
        optimization_key="loss",
        popsize=4,
        generations=generations,
        generational=True,
        seed=7,
        stopping=experiment.Threshold(upper=0.8),
        name="recorded",
        preload=(),
        verbose=0,
        **settings,
    )


def main() -> None:
    """Run the search in a session of its own, and keep its files without names of this machine."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.authenticate", "true").getOrCreate()
    try:
        with tempfile.TemporaryDirectory() as logdir:
            run = Path(search(spark, 1, logdir=logdir).logdir)
            shutil.rmtree(RECORDED, ignore_errors=True)
            for pattern in _KEPT:
                for path in run.glob(pattern):
                    target = RECORDED / path.relative_to(run)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(_without_names(path.read_bytes(), run, path.suffix))
    finally:
        spark.stop()


def _without_names(data: bytes, run: Path, suffix: str) -> bytes:
    """Return a file's content without the names of this machine."""
    for name, instead in (
        (str(run), "run"),
        (f"{Path(__file__).parents[3]}/", ""),
        (socket.gethostname(), "host"),
    ):
        data = data.replace(name.encode(), instead.encode())
    if suffix != ".jsonl":
        return data
    return b"".join(encode_line(msgspec.Raw(line[9:])) for line in data.splitlines())


if __name__ == "__main__":
    main()
