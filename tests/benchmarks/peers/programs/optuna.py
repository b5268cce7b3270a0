"""Optuna with a random sampler: threads and memory, or processes and a storage on disk."""

from __future__ import annotations

import functools
import multiprocessing
import uuid
from collections.abc import Sequence
from pathlib import Path

import optuna
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend

from tests.benchmarks.peers.trials import Configuration, Train, take_turn


class Program:
    """A study per search."""

    def __init__(self, slots: int, folder: Path, *, storage: str) -> None:
        self._slots, self._folder, self._storage = slots, folder, storage
        optuna.logging.set_verbosity(optuna.logging.ERROR)

    def search(
        self, train: Train, configurations: Sequence[Configuration], limit: float | None = None
    ) -> Sequence[object]:
        path = self._folder / uuid.uuid4().hex
        study = optuna.create_study(
            storage=open_storage(self._storage, path),
            sampler=optuna.samplers.RandomSampler(1),
        )
        run = functools.partial(objective, train, configurations)
        if self._storage == "memory":
            study.optimize(
                run, len(configurations), timeout=limit, n_jobs=self._slots, catch=Exception
            )
        else:
            self._optimize_in_processes(study, path, run, len(configurations), limit)
        finished = optuna.trial.TrialState.COMPLETE
        return [trial.value for trial in study.get_trials(states=[finished])]

    def _optimize_in_processes(
        self, study: optuna.Study, path: Path, run: object, count: int, limit: float | None
    ) -> None:
        arguments = (self._storage, path, study.study_name, run, count, limit)
        processes = [
            multiprocessing.Process(target=optimize, args=arguments) for _ in range(self._slots)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()

    def close(self) -> None:
        pass


def objective(train: Train, configurations: Sequence[Configuration], trial: optuna.Trial) -> float:
    """Suggest a value, as a search does, and run the trial's configuration."""
    trial.suggest_float("x", 0, 1)
    return train(**configurations[trial.number])


def open_storage(kind: str, path: Path) -> BaseStorage:
    """Open a study's storage; each process has its own connection."""
    if kind == "journal":
        return JournalStorage(JournalFileBackend(str(path)))
    if kind == "sqlite":
        return RDBStorage(f"sqlite:///{path}")
    return InMemoryStorage()


def optimize(
    kind: str,
    path: Path,
    name: str,
    run: functools.partial[float],
    count: int,
    limit: float | None,
) -> None:
    """Run trials of a study until all processes together have run `count`."""
    sampler = optuna.samplers.RandomSampler()
    study = optuna.load_study(study_name=name, storage=open_storage(kind, path), sampler=sampler)
    turns = f"{path}.turns"

    def stop_after_last(study: optuna.Study, _: object) -> None:
        if take_turn(turns) >= count:
            study.stop()

    if take_turn(turns) < count:
        study.optimize(run, timeout=limit, catch=Exception, callbacks=[stop_after_last])
