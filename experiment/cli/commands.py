"""The command line: lists and shows runs, also while they run.

Text of users and trials is printed without control characters.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

import experiment
from experiment.cli.console import print_best, print_facts, print_table, write_any_text
from experiment.display.description import domain_in_words
from experiment.display.logs import copy_logs, has_worker, last_attempt
from experiment.display.tensorboard_server import tensorboard
from experiment.results.result import Result
from experiment.results.text import (
    command,
    count,
    duration,
    how_to_resume,
    hyperparameters,
    number,
    printable,
)
from experiment.results.trial_result import TrialResult
from experiment.run_files.left_outcomes import Ignored
from experiment.run_files.loading import (
    OUTCOMES,
    SUMMARY,
    Run,
    files_of_trial,
    find_runs,
    ignored_in,
    load,
    opened,
    read_manifest,
    read_run,
)
from experiment.run_files.manifest import Manifest
from experiment.run_files.ownership import owned, owner_of
from experiment.run_files.repair import is_damaged, repair_journal
from experiment.setup.workers import Workers
from search.errors import ExperimentError, InvalidArgument, shown
from search.trial import Trial
from spark_jobs.run_folder.paths import STOP, RunPaths
from spark_jobs.session import active_data_settings
from spark_jobs.storage.files import WritableFiles
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import writable_files_at

_FAILED = 20  # failed trials shown
_LOGDIR = "experiments"  # the default of searches
_LATEST = "latest"


def main(arguments: Sequence[str], program: str = "python -m experiment") -> int:
    """Run one command.

    Args:
        arguments: The command line, without the program.
        program: The name of the program in its help.

    Returns:
        The exit status: 0, 2 for bad input, 130 after Ctrl-C.
    """
    write_any_text()
    options = command_parser(program).parse_args(arguments)
    try:
        if "run" in options:
            options.run = _run_meant(options.run)
        options.run_command(options)
        sys.stdout.flush()
    except ExperimentError as error:
        print(printable(str(error), keep="\n"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader has ended, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def command_parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the commands; `program` is its name in the help."""
    parser = argparse.ArgumentParser(
        prog=program, description="Look at runs.", epilog="example: %(prog)s show latest"
    )
    parser.add_argument("--version", action="version", version=experiment.__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run_command: Any, text: str, example: str) -> argparse.ArgumentParser:
        epilog = f"example: %(prog)s {example}"
        sub = commands.add_parser(name, help=text, description=text, epilog=epilog)
        sub.set_defaults(run_command=run_command)
        return sub

    listed = add("list", _list, "the runs in a folder, the newest last", "/shared/experiments")
    listed.add_argument("logdir", nargs="?", default=_LOGDIR, help=f"default: {_LOGDIR}")
    for name, run_command, text, example in (
        (
            "show",
            _show,
            "the state of a run, its best and failed trials; or all about one trial",
            "latest 3",
        ),
        ("logs", _logs, "the output of a trial, of all its attempts", "latest 3 --follow"),
        ("stop", _stop, "end a running search; its trials so far are kept", "latest"),
        (
            "repair",
            _repair,
            "cut a damaged journal before the damage, and keep the damaged files",
            "hdfs://namenode:8020/experiments/latest",
        ),
        (
            "tensorboard",
            _tensorboard,
            "start TensorBoard on a run or a folder of runs; Ctrl-C ends it",
            "/shared/experiments",
        ),
        ("export", _export, "all trials of a run", "latest --csv > trials.csv"),
    ):
        sub = add(name, run_command, text, example)
        folder = "the run's folder, also hdfs://...; latest, LOGDIR/latest: the newest run"
        sub.add_argument("run", help=folder)
        if name in ("show", "logs"):
            optional = "?" if name == "show" else None
            sub.add_argument("trial", type=int, nargs=optional, help="the trial's number")
        if name == "show":
            sub.add_argument(
                "-v", "--verbose", action="store_true", help="count the ignored outcomes"
            )
        if name == "logs":
            sub.add_argument(
                "--worker", type=int, default=0, help="of a trial on several slots; default: 0"
            )
            sub.add_argument(
                "-f", "--follow", action="store_true", help="continue until the trial has ended"
            )
        if name == "export":
            form = sub.add_mutually_exclusive_group(required=True)
            form.add_argument("--csv", action="store_true", help="a line per trial")
            form.add_argument("--json", action="store_true", help="an object per trial, in a list")
    return parser


def _list(options: argparse.Namespace) -> None:
    rows = []
    for run in _runs_in(options.logdir, "logdir"):
        try:
            with opened(str(run)) as reader:
                rows.append((run.name, *_list_row(read_run(reader.paths))))
        except ExperimentError as error:  # one broken run hides no other
            rows.append((run.name, "", f"cannot be read: {error}", "", "", ""))
    print_table(("run", "started", "state", "trials", "failed", "best"), rows)


def _runs_in(logdir: str, name: str) -> list[Location]:
    """Return the folders of the runs in a folder, at least one, the newest last.

    Args:
        logdir: The folder.
        name: The name of the argument, for the error.
    """
    try:
        runs = find_runs(Location.parse(logdir, name))
    except OSError as error:
        got = f"{logdir!r}: {error.strerror or error}"
        raise InvalidArgument(name, "a folder of runs", got) from None
    if not runs:
        raise InvalidArgument(name, "a folder of runs", f"{logdir!r}, which has none")
    return runs


def _run_meant(run: str) -> str:
    """Return a run's folder; `latest`, `LOGDIR/latest` name the newest run unless they exist."""
    folder, _, name = run.rpartition("/")
    if name != _LATEST or os.path.lexists(run):
        return run
    return str(_runs_in(folder or _LOGDIR, "run")[-1])


def _list_row(run: Run) -> tuple[str, ...]:
    result, state = run.result, _state(run)
    counts, best = f"{result.done}/{result.total}", _best(result)
    if run.manifest.call == "executor":  # calls, not trials: none is the best
        state, counts, best = f"executor, {state}", count(result.done, "call"), ""
    started = run.manifest.created.replace("T", " ").removesuffix("+00:00")
    return started, state, counts, str(len(result.failed)), best


def _best(result: Result) -> str:
    """Return "accuracy 0.9", or "front 7"; '' without a value."""
    if not result.front:
        return ""
    if result.objectives:
        return f"front {len(result.front)}"
    stopped = " (stopped early)" if result.front[0].status == "stopped" else ""
    return f"{result.objective} {result.front[0].score}{stopped}"


def _state(run: Run) -> str:
    if running := _running_on(run.paths):
        return running
    owner = owner_of(run.paths)
    if run.result.problem is not None:
        return f"ended early: {run.result.problem}"
    if run.ended:
        return "finished"
    files = [run.paths.manifest, *run.paths.journal.glob("*.jsonl")]
    state = f"not ended, last update {_ago(max(path.stat().st_mtime for path in files))}"
    if owner is None:
        return state
    if owner.alive is None:
        return f"{state}, last sign of life of its driver ({owner}) {_ago(owner.seen)}"
    return f"{state}, its driver ({owner}) is gone"


def _ago(when: float) -> str:
    return f"{duration(max(0.0, time.time() - when))} ago"


def _running_on(paths: RunPaths) -> str:
    """Return the active driver of a run as text; '' if there is none or it is unknown."""
    owner = owner_of(paths)
    return f"running on {owner}" if owner is not None and owner.alive else ""


def _may_run(run: Run) -> bool:
    """Return whether a run may have an active driver."""
    owner = owner_of(run.paths)
    if owner is None:  # released; or never taken, if there are no owner files
        return not run.ended and not run.paths.owners.is_dir()
    return not run.ended if owner.alive is None else owner.alive


def _how_to_resume(run: Run) -> str:
    whole = run.ended and run.result.problem is None and run.result.done == run.result.total
    whole = whole or not run.manifest.trials  # only the caller of an executor has the calls
    return "" if whole or _may_run(run) else how_to_resume(run.paths.shown())


def _show(options: argparse.Namespace) -> None:
    parts = [SUMMARY] if options.trial is None else [SUMMARY, files_of_trial(options.trial)]
    if options.verbose and options.trial is None:
        parts.append(OUTCOMES)
    with opened(options.run, *parts) as reader:
        run = read_run(reader.paths)
        if options.trial is None:
            _show_run(run, ignored_in(run) if options.verbose else None)
        else:
            _show_trial(run, options.trial)


def _show_run(run: Run, ignored: list[Ignored] | None) -> None:
    result, manifest = run.result, run.manifest
    facts = {
        "run": manifest.name,
        "description": manifest.description,
        "state": _state(run),
        "to continue": _how_to_resume(run),
        "so far": result.summary(),
        "call": f"experiment.{manifest.call}, train function {manifest.train}",
        "arguments": _arguments(manifest),
        "started": f"{manifest.created}, on {manifest.master}, {manifest.application}",
        "folder": run.paths.shown(),
    }
    if ignored is not None:
        facts["ignored"] = count(len(ignored), "outcome")
    print_facts(facts)
    if result.space is not None:
        rows = [(name, *domain_in_words(domain)) for name, domain in result.space.items()]
        print_table(("hyperparameter", "values", "scale"), rows, "Space")
    if run.running:
        print_table(
            ("trial", "hyperparameters"),
            [(str(a.trial.id), hyperparameters(a.trial.params)) for a in run.running],
            "Running, at the last update",
        )
    print_best(result)
    if result.failed:
        failed = result.failed[:_FAILED]
        rows = [(str(t.id), str(t.error), hyperparameters(t.params)) for t in failed]
        more = len(result.failed) - len(failed)
        title = "Failed trials" + (f", {more} more not shown" if more else "")
        print_table(("trial", "error", "hyperparameters"), rows, title)
        print(printable(f"A traceback: {command('show', run.paths.shown())} {failed[0].id}"))
    if ignored:
        rows = [(str(found.trial), str(found.attempt), found.why) for found in ignored]
        print_table(("trial", "attempt", "why"), rows, "Ignored outcomes")


def _arguments(manifest: Manifest) -> str:
    """Return the arguments, besides the space, that a call must repeat to resume the run."""
    names = ("direction", "optimization_key", "seed")
    given = {name: getattr(manifest, name) for name in names} | manifest.algorithm
    return ", ".join(f"{name}={value!r}" for name, value in given.items() if name != "type")


def _show_trial(run: Run, trial: int) -> None:
    ended = next((t for t in run.result.trials if t.id == trial), None)
    if ended is not None:
        facts = _facts_of_result(ended, run.result)
    else:
        running = next((a.trial for a in run.running if a.trial.id == trial), None)
        if running is None:
            raise _no_trial(run, trial)
        facts = _facts_of_running(running)
    attempt = last_attempt(run.paths, trial)
    if attempt is not None:
        facts["folder"] = run.paths.shown(attempt.folder)
        facts["output"] = f"{command('logs', run.paths.shown())} {trial}"
    print_facts(facts)
    if ended is not None and ended.error is not None and ended.error.traceback:
        print(printable(ended.error.traceback, keep="\n\t"))


def _facts_of_result(trial: TrialResult, result: Result) -> dict[str, str]:
    facts = {"trial": str(trial.id), "status": trial.status}
    scores = dict(trial.values) if result.objective is None else {result.objective: trial.value}
    facts |= {name: number(score) for name, score in scores.items() if score is not None}
    if trial in result.front and result.objectives:
        facts["on the front"] = f"with {count(len(result.front) - 1, 'other')}"
    facts["hyperparameters"] = hyperparameters(trial.params)
    others = {name: value for name, value in trial.metrics.items() if name not in scores}
    facts["metrics"] = ", ".join(f"{name}={number(value)}" for name, value in others.items())
    facts["took"] = duration(trial.seconds)
    if trial.attempt > 1:
        facts["attempt"] = f"{trial.attempt}; earlier attempts have folders of their own"
    if trial.reason:
        facts["stopped at"] = trial.reason
    if trial.error is not None:
        facts["error"] = f"{trial.error.message} ({trial.error.kind})"
    return facts


def _facts_of_running(trial: Trial) -> dict[str, str]:
    params = hyperparameters(trial.params)
    return {"trial": str(trial.id), "status": "running", "hyperparameters": params}


def _logs(options: argparse.Namespace) -> None:
    with opened(options.run, SUMMARY, files_of_trial(options.trial)) as reader:
        if last_attempt(reader.paths, options.trial) is None:
            raise _no_trial(read_run(reader.paths), options.trial)
        if options.worker and not has_worker(reader.paths, options.trial, options.worker):
            given = read_manifest(reader.paths).workers_per_trial
            last = Workers.read("workers_per_trial", given).most - 1
            expected = f"a worker of trial {options.trial} that has started, 0 to {last}"
            raise InvalidArgument("worker", expected, shown(options.worker))
        copy_logs(reader, options.trial, worker=options.worker, follow=options.follow)


def _stop(options: argparse.Namespace) -> None:
    with opened(options.run) as reader:
        paths = reader.paths
        state = _running_on(paths)  # also where its journal is damaged
        if not state:
            run = read_run(paths)
            state = _state(run)
            if not _may_run(run):
                got = f"{paths.shown()!r}, {state}"
                raise InvalidArgument("run", "a run in progress", got, _how_to_resume(run))
    with _writable(paths) as files:
        files.write(Location.parse(paths.shown()).below(STOP), b"")
    print(f"asked to stop: {printable(paths.shown())}, {state}")


@contextlib.contextmanager
def _writable(paths: RunPaths) -> Iterator[WritableFiles]:
    """Open a run's folder for writing; raise InvalidArgument if it is read-only."""
    place = Location.parse(paths.shown())
    with contextlib.closing(writable_files_at(place, active_data_settings().hadoop)) as files:
        try:
            yield files
        except OSError as error:
            got = f"{paths.shown()!r}, which cannot be written to: {error.strerror or error}"
            raise InvalidArgument("run", "the folder of a run", got) from None


def _repair(options: argparse.Namespace) -> None:
    with opened(options.run) as reader:
        paths = reader.paths
        read_manifest(paths)
        repaired = None
        if is_damaged(paths):
            place, hadoop = Location.parse(paths.shown()), active_data_settings().hadoop
            who = command("repair", paths.shown())
            with (
                owned(place, hadoop, who, taken=_interrupt, tell=_print_error, argument="run"),
                _writable(paths) as files,
            ):
                reader.refresh()
                repaired = repair_journal(paths, files)
        if repaired is None:
            read_run(paths)  # it raises other errors of the run
            print(f"nothing to repair: {printable(paths.shown(paths.journal))} is not damaged")
            return
    for line in (
        f"damaged: {repaired.damage.what}",
        f"kept: {count(repaired.records, 'record')} before it; copies of the damaged files: "
        + ", ".join(repaired.aside),
        f"to continue, call the search again with resume={paths.shown()!r}; trials whose folders "
        "have an outcome are not run again",
    ):
        print(printable(line))


def _interrupt(reason: str) -> None:
    _print_error(reason)
    signal.raise_signal(signal.SIGINT)


def _print_error(message: str) -> None:
    print(printable(message), file=sys.stderr)


def _tensorboard(options: argparse.Namespace) -> None:
    with tensorboard(options.run) as board:
        sys.stdout.flush()
        board.wait()


def _export(options: argparse.Namespace) -> None:
    result = load(options.run)
    if options.csv:
        # All text in quotes: otherwise a lone carriage return would be read as the end of a line.
        text = result.to_pandas().to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC)
        text = text.encode("utf-8", "backslashreplace").decode()  # the folder may be no UTF-8
        sys.stdout.write(printable(text, keep="\n\t") if sys.stdout.isatty() else text)
        return
    json.dump(
        [_as_json(trial, result) for trial in result.trials], sys.stdout, indent=1, allow_nan=False
    )
    sys.stdout.write("\n")


def _as_json(trial: TrialResult, result: Result) -> dict[str, Any]:
    score: dict[str, Any] = {"value": trial.value}
    if result.objectives:
        score = {"values": trial.values, "on_front": trial in result.front}
    return {
        "trial": trial.id,
        "status": trial.status,
        "attempt": trial.attempt,
        **score,
        "params": _finite(trial.params),
        "metrics": _finite(trial.metrics),
        "error": None if trial.error is None else msgspec.structs.asdict(trial.error),
        "reason": trial.reason,
        "seconds": trial.seconds,
        "logdir": trial.logdir,
    }


def _finite(value: Any) -> Any:
    """Return a value in standard JSON: infinities and NaN as text, tuples as lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _no_trial(run: Run, trial: int) -> InvalidArgument:
    started = run.running or run.result.trials
    hint = f"see {command('show', run.paths.shown())}" if started else "no trial has started yet"
    return InvalidArgument("trial", "the number of a trial that has started", shown(trial), hint)
