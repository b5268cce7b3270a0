"""Slots without Spark: processes that run trials as a slot does, several of them on one GPU."""

from __future__ import annotations

import contextlib
import multiprocessing
import queue
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cloudpickle

from search.trial import Outcome, Trial
from spark_jobs.messages import Attempt
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.slot.gpus.devices import gpu_share, trial_environment
from spark_jobs.slot.runners import ProcessRunner
from spark_jobs.trial.trial_process import Program
from tests.gpu.training import train


def run_trials(
    trials: Sequence[Mapping[str, Any]],
    *,
    slots: int,
    cores: int,
    preload: Sequence[str],
    gpus: Sequence[str] = ("0",),
) -> list[Outcome]:
    """Run trials of `train`, as many at once as there are slots; return their outcomes.

    Args:
        trials: The arguments of each.
        slots: Processes that each run one trial at a time.
        cores: Of the machine, shared by the slots.
        preload: What a slot imports before its first trial.
        gpus: Addresses of the one that they share; none on a machine without.
    """
    context = multiprocessing.get_context("spawn")
    todo, ended = context.Queue(), context.Queue()
    for number, params in enumerate(trials):
        todo.put((number, dict(params)))
    for _ in range(slots):
        todo.put(None)
    share = gpu_share(gpus, slots)
    program = Program(
        function=cloudpickle.dumps(train),
        key="loss",
        direction="min",
        preload=tuple(preload),
        gpu_share=share,
    )
    environment = trial_environment(
        gpus, spark_assigns_gpus=True, cpus=max(1, cores // slots), share=share
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = (program, environment, folder, todo, ended)
        processes = [context.Process(target=_slot, args=arguments) for _ in range(slots)]
        for process in processes:
            process.start()
        outcomes = [_next_of(ended, processes) for _ in trials]
        for process in processes:
            process.join()
    return sorted(outcomes, key=lambda outcome: outcome.trial)


def _next_of(ended: Any, processes: Sequence[Any]) -> Outcome:
    while True:
        with contextlib.suppress(queue.Empty):
            outcome: Outcome = ended.get(timeout=1)
            return outcome
        if not any(process.is_alive() for process in processes):
            raise RuntimeError("the slots have ended before their trials")


def _slot(
    program: Program, environment: dict[str, str | None], folder: str, todo: Any, ended: Any
) -> None:
    with ProcessRunner(program, environment) as runner:
        for number, params in iter(todo.get, None):
            files = RunPaths(Path(folder)).attempt(number)
            files.folder.mkdir(parents=True)
            ended.put(runner.run(Attempt(Trial(number, params)), files, lambda report: None))
