"""A search whose trials report for some seconds, and the wait for their steps."""

from __future__ import annotations

import threading

import experiment

SECONDS = 120  # the limit for each wait


def steady(trial, folder):
    """Report until the file `enough` exists; return the number of reports."""
    import os
    import time

    import experiment

    step = 0
    while not os.path.exists(os.path.join(folder, "enough")):
        experiment.report(step=step, value=float(step))
        step += 1
        with open(os.path.join(folder, f"alive-{trial}"), "w") as file:
            file.write(str(step))
        time.sleep(0.01)
    return {"value": float(step)}


def search(spark, logdir, folder, **settings):
    return experiment.submit(
        experiment.launch,
        spark,
        steady,
        {"trial": [0, 1], "folder": [str(folder)]},
        logdir=logdir,
        preload=(),
        optimization_key="value",
        stopping=experiment.Threshold(lower=-1),
        **settings,
    )


def wait_until(ready):
    end = threading.Event()
    for _ in range(SECONDS * 20):
        if ready():
            return
        end.wait(0.05)
    raise AssertionError("it did not come to it")


def steps(folder, trial):
    """Return the number of a trial's steps."""
    try:
        return int((folder / f"alive-{trial}").read_text() or 0)
    except FileNotFoundError:
        return 0


def wait_for_steps(folder, more=20):
    """Wait until both trials have made more steps."""
    before = [steps(folder, trial) for trial in (0, 1)]
    wait_until(lambda: all(steps(folder, t) >= before[t] + more for t in (0, 1)))
