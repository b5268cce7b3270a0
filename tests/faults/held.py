"""Trials that record where they run and wait for a test; checks of their results."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import experiment
from experiment.run_files.journal import read_journal
from spark_jobs.run_folder.paths import RunPaths
from tests.experiment.waiting import alive, processes_in, wait_until

QUIET = {"preload": (), "verbose": 0}


def held_in(folder: Path):
    """Return a train function that records where it runs, and waits until a test releases it.

    A file `release` releases all trials, `release-<number>` one.
    """

    def train(x):
        import os
        from pathlib import Path

        import experiment

        host = os.environ["SPARK_LOCAL_IP"]
        (folder / f"pid-{os.getpid()}").touch()
        attempt = Path(experiment.logdir()).name
        (folder / f"{attempt}@{host}").touch()
        gates = folder / "release", folder / f"release-{int(attempt[:6])}"
        while not any(gate.exists() for gate in gates):
            time.sleep(0.02)
        return 2 * x

    return train


def hosts_of(folder: Path) -> dict[str, str]:
    """Return the host of each started attempt, by the name of its folder."""
    return dict(path.name.split("@") for path in folder.glob("*@*"))


def release(folder: Path, handle, seconds: float = 120):
    """Release the trials, and return the result of their search."""
    (folder / "release").touch()
    return handle.result(timeout=seconds)


def check(result, values: list[float], folder: Path) -> dict[int, int]:
    """Check that no trial is lost or counted twice, and return the attempt that counted.

    Args:
        result: The result of the search.
        values: The expected values of its trials.
        folder: The folder with the records of the trials' processes.
    """
    assert [trial.value for trial in result.trials] == values
    assert [trial.id for trial in result.trials] == list(range(len(values)))
    paths = RunPaths(Path(result.logdir))
    finished = [r for r in read_journal(paths.journal) if r["event"] == "finished"]
    assert Counter(r["outcome"]["trial"] for r in finished) == Counter(range(len(values)))
    loaded = experiment.load(result.logdir)
    assert [trial.value for trial in loaded.trials] == values
    assert [trial.logdir for trial in loaded.trials] == [trial.logdir for trial in result.trials]
    for trial in range(len(values)):
        shown = {path.parent for path in paths.trials.glob(f"{trial:06d}*/*tfevents*")}
        assert shown == {Path(result.trials[trial].logdir)}, "TensorBoard shows one run per trial"
    wait_until(lambda: not alive(processes_in(folder)))
    return {r["outcome"]["trial"]: r["attempt"] for r in finished}
