"""The state of a run, and all about one of its trials."""

from __future__ import annotations

from experiment.cli.activity import how_to_continue, running_on, state_of
from experiment.cli.console import print_best, print_facts, print_table
from experiment.display.description import arguments_of_algorithm, domain_in_words
from experiment.display.logs import last_attempt
from experiment.results.result import Result
from experiment.results.text import (
    as_arguments,
    command,
    count,
    duration,
    hyperparameters,
    number,
    printable,
    unambiguous,
)
from experiment.results.trial_result import TrialResult
from experiment.run_files.left_outcomes import Ignored
from experiment.run_files.loading import (
    OUTCOMES,
    SUMMARY,
    Run,
    ignored_in,
    opened,
    pattern_of_trial,
    read_run,
)
from search.errors import InvalidArgument, prefixed, shown
from spark_jobs.messages import Attempt

_FAILED = 20  # failed trials shown


def show(run: str, trial: int | None, *, verbose: bool) -> None:
    """Print the state of a run, or all about one of its trials.

    Args:
        run: The run's folder.
        trial: The trial's number; None for the run.
        verbose: Whether to count the outcomes of the run that are ignored.

    Raises:
        InvalidArgument: The folder is no run, or has no such trial.
    """
    parts = [SUMMARY] if trial is None else [SUMMARY, pattern_of_trial(trial)]
    if verbose and trial is None:
        parts.append(OUTCOMES)
    with opened(run, *parts) as reader:
        found = read_run(reader.paths)
        if trial is None:
            _show_run(found, ignored_in(found) if verbose else None)
        else:
            _show_trial(found, trial)


def _show_run(run: Run, ignored: list[Ignored] | None) -> None:
    result, manifest = run.result, run.manifest
    facts = {
        "run": manifest.name,
        "description": manifest.description,
        "state": state_of(run),
        "to continue": how_to_continue(run),
        "so far": count(result.done, "call") if manifest.of_calls else result.summary(),
        "call": f"experiment.{manifest.call}, train function {manifest.train}",
        "arguments": _arguments(run),
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
    if not manifest.of_calls:
        print_best(result)
    if result.failed:
        failed = result.failed[:_FAILED]
        rows = [(str(t.id), str(t.error), hyperparameters(t.params)) for t in failed]
        more = len(result.failed) - len(failed)
        title = "Failed trials" + (f", {more} more not shown" if more else "")
        print_table(("trial", "error", "hyperparameters"), rows, title)
        for trial in result.failed:
            if trial.error is not None and trial.error.traceback:
                print(printable(f"A traceback: {command('show', run.paths.shown())} {trial.id}"))
                break
    if ignored:
        rows = [(str(found.trial), str(found.attempt), found.why) for found in ignored]
        print_table(("trial", "attempt", "why"), rows, "Ignored outcomes")


def _arguments(run: Run) -> str:
    """Return the arguments, besides the space, that a call must repeat to resume the run.

    They are those of the first call; a later one may have had a larger budget.
    """
    manifest, total = run.manifest, run.result.total
    names = ["direction", "optimization_key", "seed"]
    if manifest.repeats > 1:
        names.append("repeats")
    given = as_arguments({name: getattr(manifest, name) for name in names})
    # An executor has no number of trials.
    larger = f"; since it was resumed, {total} trials" if 0 < manifest.trials < total else ""
    return given + prefixed(", ", arguments_of_algorithm(manifest)) + larger


def _show_trial(run: Run, trial: int) -> None:
    ended = next((t for t in run.result.trials if t.id == trial), None)
    if ended is not None:
        facts = _facts_of_result(ended, run.result, _places(run, trial, ended.logdir))
    else:
        attempts = (*run.running, *run.waiting)
        attempt = next((attempt for attempt in attempts if attempt.trial.id == trial), None)
        if attempt is None:
            raise no_trial(run, trial)
        waiting = attempt in run.waiting
        facts = _facts_of_attempt(run, attempt, waiting=waiting) | _places(run, trial)
    print_facts(facts)
    if ended is not None and ended.error is not None and ended.error.traceback:
        print(printable(ended.error.traceback, keep="\n\t"))


def _places(run: Run, trial: int, folder: str | None = None) -> dict[str, str]:
    """Return where the files of a trial are, as facts.

    Args:
        run: The run.
        trial: The trial's number.
        folder: The folder of the attempt that counts; None for the newest one.
    """
    try:
        newest = last_attempt(run.paths, trial)
    except PermissionError:  # the facts of the journal do not need it
        return {"folder": folder} if folder else {}
    if newest is None:
        return {}
    output = f"{command('logs', run.paths.shown())} {trial}"
    return {"folder": folder or run.paths.shown(newest.folder), "output": output}


def _facts_of_result(trial: TrialResult, result: Result, places: dict[str, str]) -> dict[str, str]:
    first = {"trial": str(trial.id), "status": trial.status}
    scores = dict(trial.values) if result.objective is None else {result.objective: trial.value}
    last = {"on the front": "", "hyperparameters": hyperparameters(trial.params)}
    if trial in result.front and result.objectives:
        last["on the front"] = f"with {count(len(result.front) - 1, 'other')}"
    others = {name: value for name, value in trial.metrics.items() if name not in scores}
    last["metrics"] = ", ".join(f"{name}={number(value)}" for name, value in others.items())
    last["took"] = duration(trial.seconds)
    if trial.attempt > 1:
        last["attempt"] = f"{trial.attempt}; earlier attempts have folders of their own"
    if trial.reason:
        last["stopped at"] = trial.reason
    if trial.error is not None:
        last["error"] = f"{trial.error.message} ({trial.error.kind})"
    last |= places
    named = {
        unambiguous(name, first | last, "metrics"): number(score)
        for name, score in scores.items()
        if score is not None
    }
    return first | named | last


def _facts_of_attempt(run: Run, attempt: Attempt, *, waiting: bool) -> dict[str, str]:
    trial = attempt.trial
    status = "running" if running_on(run.paths) else "running at the last update"
    if waiting:
        status = f"waiting to run again, after attempt {attempt.number - 1}"
    params = hyperparameters(trial.params)
    return {"trial": str(trial.id), "status": status, "hyperparameters": params}


def no_trial(run: Run, trial: int) -> InvalidArgument:
    """Return the error for the number of a trial that has not started."""
    started = run.running or run.waiting or run.result.trials
    hint = f"see {command('show', run.paths.shown())}" if started else "no trial has started yet"
    return InvalidArgument("trial", "the number of a trial that has started", shown(trial), hint)
