"""What is checked and decided of a search before anything of it begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from experiment.run_files.loading import find_run
from experiment.run_files.manifest import Manifest, folder_name, now, versions
from experiment.setup.resuming import check_same_search, manifest_of
from experiment.setup.settings import Settings, check_folder, choose_logdir
from experiment.setup.sources import hash_of_constraint, hash_of_train, name_of
from experiment.setup.specification import Search
from experiment.setup.train_function import check_arguments, pickle_function
from search.stopping import read_rules
from spark_jobs.session import session_of
from spark_jobs.session.session import Session
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.trial.context import DataSettings


@dataclass(frozen=True, slots=True)
class Prepared:
    """A search whose input is checked, and of which nothing has begun.

    Attributes:
        search: What to run.
        settings: What all searches share.
        session: That runs it.
        function: The train function, pickled.
        data: How trials get at their data.
        manifest: What its run will say of itself.
        root: The run's folder, which is not there yet unless the run is resumed.
    """

    search: Search
    settings: Settings
    session: Session
    function: bytes
    data: DataSettings
    manifest: Manifest
    root: Location


def prepare(
    spark: Any,
    train: Callable[..., Any],
    search: Search,
    settings: Settings,
    seed: int,
    *,
    warn: Callable[[str], None],
) -> Prepared:
    """Check the input of a search, by itself and against the session. Runs no Spark job.

    Args:
        spark: The user's SparkSession.
        train: The train function.
        search: What to run.
        settings: What all searches share.
        seed: That the searcher was made with.
        warn: Shows the user a sentence.

    Raises:
        InvalidArgument: Something is wrong with it.
    """
    # Of a list of points, which may be long, each set of names once.
    names_of_points = dict.fromkeys(map(frozenset, search.points))
    for names in [search.columns] if search.space is not None else names_of_points:
        check_arguments(train, names, search.conditional)
    function = pickle_function(train)
    session = session_of(spark).asking(settings.gpus_per_trial, settings.trials_per_gpu)
    session.check_worker_timeouts()
    data = session.data_settings()
    manifest = _manifest(train, function, search, settings, seed, session)
    root = _root(settings, manifest, session, data.hadoop, warn)
    return Prepared(search, settings, session, function, data, manifest, root)


def _manifest(
    train: Callable[..., Any],
    function: bytes,
    search: Search,
    settings: Settings,
    seed: int,
    session: Session,
) -> Manifest:
    return Manifest(
        name=settings.name or name_of(train),
        description=settings.description,
        call=search.call,
        train=name_of(train),
        function=hash_of_train(train, function),
        algorithm=dict(search.algorithm or {}),
        space=None if search.space is None else search.space.to_json(),
        constraint=None if search.space is None else hash_of_constraint(search.space.constraint),
        trials=search.searcher.total,
        known=len(search.known),
        slots=search.slots,
        direction=settings.goal.to_json(),
        optimization_key=settings.optimization_key,
        seed=seed,
        isolation=settings.isolation,
        timeout=settings.timeout,
        stopping=[rule.to_json() for rule in read_rules(settings.stopping)],
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
    """Return the run's folder: a new one, or that of the run to resume, which is the same search.

    Raises:
        InvalidArgument: It cannot be written to, or is that of another search.
    """
    if settings.resume is None:
        logdir = choose_logdir(settings.logdir, session.default_logdir(), hadoop)
        return logdir.below(folder_name(manifest.name))
    root = find_run(settings.resume, "resume")
    for warning in check_same_search(manifest_of(settings.resume), manifest, str(root)):
        warn(warning)
    check_folder("resume", root, hadoop)
    return root
