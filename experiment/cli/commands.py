"""The command line: lists and shows runs, also while they run.

Text of users and trials is printed without control characters.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import experiment
from experiment.cli.activity import how_to_continue, may_run, running_on, state_of
from experiment.cli.console import drop_output, print_error, write_any_text
from experiment.cli.exporting import export
from experiment.cli.following import Followed
from experiment.cli.listing import LOGDIR, list_runs, run_meant
from experiment.cli.showing import no_trial, show
from experiment.display.logs import copy_logs, has_worker, last_attempt
from experiment.display.tensorboard_server import tensorboard
from experiment.results.text import command, count, printable
from experiment.run_files.loading import (
    SUMMARY,
    opened,
    pattern_of_trial,
    read_manifest,
    read_run,
)
from experiment.run_files.ownership import owned
from experiment.run_files.repair import is_damaged, repair_journal
from experiment.setup.workers import Workers
from search.errors import ExperimentError, InvalidArgument, shown
from spark_jobs.run_folder.paths import STOP, RunPaths
from spark_jobs.session import active_data_settings
from spark_jobs.storage.files import WritableFiles
from spark_jobs.storage.locations import Location
from spark_jobs.storage.stores import writable_files_at


def main(arguments: Sequence[str], program: str = "python -m experiment") -> int:
    """Run one command.

    Args:
        arguments: The command line, without the program.
        program: The name of the program in its help.

    Returns:
        The exit status: 0, 2 after an error such as bad input, 130 after Ctrl-C.
    """
    write_any_text()
    options = command_parser(program).parse_args(arguments)
    try:
        if "run" in options:
            options.run = run_meant(options.run)
        options.run_command(options)
        sys.stdout.flush()
    except ExperimentError as error:
        print_error(str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader has ended, as in `| head`
        drop_output(sys.stdout)
    except OSError as error:  # such as a full disk, or a file of another user
        print_error(str(error))
        try:
            sys.stdout.flush()
        except OSError:
            drop_output(sys.stdout)
        return 2
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

    def add_for_run(
        name: str, run_command: Any, text: str, example: str
    ) -> argparse.ArgumentParser:
        sub = add(name, run_command, text, example)
        folder = "the run's folder, also hdfs://...; latest, LOGDIR/latest: the newest run"
        sub.add_argument("run", help=folder)
        return sub

    listed = add("list", _list, "the runs in a folder, the newest last", "/shared/experiments")
    listed.add_argument("logdir", nargs="?", default=LOGDIR, help=f"default: {LOGDIR}")
    text = "the state of a run, its best and failed trials; or all about one trial"
    shown_run = add_for_run("show", _show, text, "latest 3")
    shown_run.add_argument("trial", type=int, nargs="?", help="the trial's number")
    ignored = "without TRIAL: also count and list the ignored outcomes"
    shown_run.add_argument("-v", "--verbose", action="store_true", help=ignored)
    text = "the output of a trial, of all its attempts"
    logs = add_for_run("logs", _logs, text, "latest 3 --follow")
    logs.add_argument("trial", type=int, help="the trial's number")
    worker = "of a trial on several slots; default: 0"
    logs.add_argument("--worker", type=int, default=0, help=worker)
    until = "continue until the trial has ended or the driver is gone"
    logs.add_argument("-f", "--follow", action="store_true", help=until)
    add_for_run("stop", _stop, "end a running search; its trials so far are kept", "latest")
    text = "cut a damaged journal before the damage, and keep the damaged files"
    add_for_run("repair", _repair, text, "hdfs://namenode:8020/experiments/latest")
    text = "start TensorBoard on a run or a folder of runs; Ctrl-C ends it"
    add_for_run("tensorboard", _tensorboard, text, "/shared/experiments")
    exported = add_for_run("export", _export, "all trials of a run", "latest --csv > trials.csv")
    form = exported.add_mutually_exclusive_group(required=True)
    form.add_argument("--csv", action="store_true", help="a line per trial")
    form.add_argument("--json", action="store_true", help="an object per trial, in a list")
    return parser


def _list(options: argparse.Namespace) -> None:
    list_runs(options.logdir)


def _show(options: argparse.Namespace) -> None:
    show(options.run, options.trial, verbose=options.verbose)


def _logs(options: argparse.Namespace) -> None:
    with opened(options.run, SUMMARY, pattern_of_trial(options.trial)) as reader:
        if last_attempt(reader.paths, options.trial) is None:
            raise no_trial(read_run(reader.paths), options.trial)
        if options.worker and not has_worker(reader.paths, options.trial, options.worker):
            given = read_manifest(reader.paths).workers_per_trial
            last = Workers.read("workers_per_trial", given).most - 1
            expected = f"a worker of trial {options.trial} that has started, 0 to {last}"
            raise InvalidArgument("worker", expected, shown(options.worker))
        until = Followed(reader.paths, options.trial).has_ended if options.follow else None
        copy_logs(reader, options.trial, worker=options.worker, until=until)


def _stop(options: argparse.Namespace) -> None:
    with opened(options.run) as reader:
        paths = reader.paths
        state = running_on(paths)  # also where its journal is damaged
        if not state:
            run = read_run(paths)
            state = state_of(run)
            if not may_run(run):
                got = f"{paths.shown()!r}, {state}"
                raise InvalidArgument("run", "a run in progress", got, how_to_continue(run))
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
                owned(place, hadoop, who, taken=_interrupt, tell=print_error, argument="run"),
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
        "the run counts as not ended; to continue, call the search again with "
        f"resume={paths.shown()!r}; trials whose folders "
        "have an outcome are not run again",
    ):
        print(printable(line))


def _interrupt(reason: str) -> None:
    print_error(reason)
    signal.raise_signal(signal.SIGINT)


def _tensorboard(options: argparse.Namespace) -> None:
    with tensorboard(options.run) as board:
        sys.stdout.flush()
        status = board.wait()
    raise ExperimentError(f"TensorBoard has ended by itself, with status {status}")


def _export(options: argparse.Namespace) -> None:
    export(options.run, as_csv=options.csv)
