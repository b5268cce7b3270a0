"""Checks and decisions before a search starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from experiment.run_files.loading import find_run
from experiment.run_files.manifest import Manifest, folder_name, now, versions
from experiment.setup.function.imports import Preload, preload_of
from experiment.setup.function.sources import hash_of_constraint, hash_of_train, name_of
from experiment.setup.function.train_function import check_arguments, pickle_function
from experiment.setup.resuming import check_same_search, manifest_of
from experiment.setup.settings import NO_SHARED_GPU, Settings, check_folder, choose_logdir
from experiment.setup.specification import SearchSpec
from experiment.setup.strategy import strategy_of
from search.errors import InvalidArgument
from search.searcher import why_exhausted
from spark_jobs.cluster.task_needs import TASK_GPUS, TaskNeeds
from spark_jobs.messages import as_json
from spark_jobs.session import session_of
from spark_jobs.session.session import Session
from spark_jobs.slot.closure import Shared
from spark_jobs.slot.gang.held_ports import DEFAULT_PORTS, Ports
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.strategies.settings import Jax, Strategy, StrategyName
from spark_jobs.trial.context import DataSettings
from spark_jobs.trial.trial_process import Program
from spark_jobs.zygote.shared_import import OURS, SELECTS_JAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A search that was checked and has not started.

    Attributes:
        spec: The search.
        session: The session that runs it.
        function: The train function, pickled.
        data: The data settings of its trials.
        manifest: The manifest of its run.
        root: The run's folder, which exists only if the run is resumed.
        preload: The modules to import once for all its trials.
        keep_warm: Seconds for which executors keep the process that has imported for its trials;
            0 if trials are not forked.
        worker_ports: The ports on which workers of a trial may listen for each other.
        strategy: How the workers of a trial train together.
    """

    spec: SearchSpec
    session: Session
    function: bytes
    data: DataSettings
    manifest: Manifest
    root: Location
    preload: Preload
    keep_warm: float = 0.0
    worker_ports: Ports = DEFAULT_PORTS
    strategy: Strategy | None = None

    @property
    def program(self) -> Program:
        """The program that all its trials run."""
        settings = self.spec.settings
        return Program(
            function=self.function,
            key=settings.optimization_key,
            direction=settings.goal.to_json(),
            preload=self.shared_import.modules,
            guessed=self.shared_import.guessed,
            start_method="spawn" if settings.isolation == "spawn" else "fork",
            seed=self.spec.seed if self.manifest.seeds_trials else None,
            data=self.data,
            strategy=self.strategy,
            precision=settings.precision,
            repeats=settings.repeats,
        )

    @property
    def shared_import(self) -> Shared:
        """The import that the slots of an executor share."""
        return shared_import(self.preload, self.keep_warm, self.strategy)


def shared_import(
    preload: Preload, keep_warm: float, strategy: Strategy | StrategyName | None
) -> Shared:
    """Return the import that the slots of an executor share.

    Args:
        preload: The modules to import once for all trials.
        keep_warm: Seconds for which they stay imported; 0 for no shared import.
        strategy: How the workers of a trial train together; one that needs a backend of Keras
            selects it before the other modules are imported.
    """
    first = (SELECTS_JAX,) if isinstance(strategy, Jax) else ()
    # `experiment` too: train functions call it, and in the zygote it is imported only once
    modules = (*first, *preload.required, *OURS)
    return Shared(modules, preload.guessed, keep_warm)


def prepare(spec: SearchSpec, *, warn: Callable[[str], None]) -> Prepared:
    """Check the arguments of a search, alone and against the session. Runs no Spark job.

    Args:
        spec: The search.
        warn: Called with each warning for the user.

    Raises:
        InvalidArgument: An argument is invalid.
    """
    # A list of configurations may be long: check each set of names once.
    names_of_points = dict.fromkeys(map(frozenset, spec.points))
    for names in [spec.columns] if spec.space is not None else names_of_points:
        check_arguments(spec.train, names, spec.conditional)
    function = pickle_function(spec.train)
    gpus = spec.settings.gpus_per_trial, spec.settings.trials_per_gpu
    session = session_of(spec.spark).asking(*gpus)
    check_gpus_of_workers(spec.settings, session.task_needs)
    session.check_settings()
    data, keep_warm = session.data_settings(), session.keep_warm()
    worker_ports = session.worker_ports()
    preload = preload_of(spec.settings, spec.train)
    strategy = strategy_of(spec.settings, spec.train, session)
    manifest = _manifest(spec, function, preload, strategy, session)
    root = _root(spec.settings, manifest, session, data.hadoop, warn)
    shares = spec.settings.isolation == "process"
    return Prepared(
        spec=spec,
        session=session,
        function=function,
        data=data,
        manifest=manifest,
        root=root,
        preload=preload,
        keep_warm=keep_warm if shares else 0.0,
        worker_ports=worker_ports,
        strategy=strategy,
    )


def check_gpus_of_workers(settings: Settings, needs: TaskNeeds) -> None:
    """Refuse a part of a GPU for each of several workers, as `Settings` does for its arguments.

    Args:
        settings: The search's settings.
        needs: What a slot of the search needs.

    Raises:
        InvalidArgument: Several workers of a trial would share a GPU.
    """
    if settings.workers.are_several and needs.tasks_per_gpu > 1:
        expected = f"at least 1 with {settings.workers} workers"
        hint = f"pass gpus_per_trial=1: {NO_SHARED_GPU}"
        raise InvalidArgument(TASK_GPUS, expected, f"{needs.gpus:g}", hint)


def _manifest(
    spec: SearchSpec,
    function: bytes,
    preload: Preload,
    strategy: Strategy | None,
    session: Session,
) -> Manifest:
    settings = spec.settings
    return Manifest(
        name=settings.name or name_of(spec.train),
        description=settings.description,
        call=spec.call,
        train=name_of(spec.train),
        function=hash_of_train(spec.train, function),
        algorithm=dict(spec.algorithm or {}),
        space=None if spec.space is None else spec.space.to_json(),
        constraint=None if spec.space is None else hash_of_constraint(spec.space.constraint),
        trials=spec.searcher.total,
        exhausted=why_exhausted(spec.searcher),
        known=len(spec.known),
        slots=spec.slots,
        direction=settings.goal.to_json(),
        optimization_key=settings.optimization_key,
        seed=spec.seed,
        seeds_trials=settings.seed is not None
        or (settings.resume is not None and manifest_of(settings.resume).seeds_trials),
        isolation=settings.isolation,
        workers_per_trial=settings.workers_per_trial,
        strategy=None if strategy is None else as_json(strategy),
        precision=settings.precision,
        repeats=settings.repeats,
        preload=list(preload.modules),
        timeout=settings.timeout,
        stopping=[rule.to_json() for rule in settings.rules],
        application=session.application_id,
        master=session.master,
        created=now(),
        versions=versions(),
    )


def _root(
    settings: Settings,
    manifest: Manifest,
    session: Session,
    hadoop: HadoopSettings,
    warn: Callable[[str], None],
) -> Location:
    """Return the run's folder: a new one, or that of the run to resume.

    Raises:
        InvalidArgument: The folder cannot be written to, or is that of another search.
    """
    if settings.resume is None:
        default, in_container = session.default_logdir(), session.in_container
        logdir = choose_logdir(settings.logdir, default, hadoop, in_container=in_container)
        return logdir.below(folder_name(manifest.name))
    root = find_run(settings.resume, "resume")
    for warning in check_same_search(manifest_of(settings.resume), manifest, str(root)):
        warn(warning)
    check_folder("resume", root, hadoop)
    return root
