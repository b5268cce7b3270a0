"""A run as the tab's page gets it: everything at first, then only what has changed."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from experiment.results.importance import importance_of
from experiment.results.text import printable
from experiment.results.trial_result import TrialResult
from experiment.run_files.loading import Run, RunReader, read_manifest, read_summary
from experiment.tab.facts import ended_at, facts_of, facts_of_ended
from experiment.tab.shown import shown_space, shown_value
from experiment.tab.timeline import Timeline
from experiment.tab.trial_files import TrialFiles
from experiment.tab.trial_page import page_of_files, trial_page
from search.trial import Trial
from search.values import is_finite
from spark_jobs.run_folder.paths import RunPaths

_MOST_METRICS = 30  # columns of the table; a trial's own page has all
_LONGEST = 300  # characters of an error's message in the table


class RunPages:
    """Reads one run, each time only the new records of its journal. Thread safe.

    Args:
        name: The run's name in requests.
        paths: The run's paths.
        files: The files of its trials.
    """

    def __init__(self, name: str, paths: RunPaths, files: TrialFiles) -> None:
        self.name = name
        self.paths = paths
        self._files = files
        self._reading = 0  # grows when the journal is read from its beginning again
        self._reader = RunReader(paths, self._make_timeline)
        self._timeline = Timeline(paths)
        self._run: Run | None = None
        self._ended: dict[str, Any] | None = None  # an ended run's facts
        self._end: tuple[int, ...] | None = None  # the summary's file that they are from
        self._importance = b"", -1  # and the number of trials that it was computed from
        self._lock = threading.Lock()

    def summary(self) -> dict[str, Any]:
        """Return the facts of the run; of one that ran to its end, without reading its journal.

        Raises:
            ExperimentError: The run cannot be read.
        """
        with self._lock:
            if self._run is None and (end := self._end_now()) != self._end:
                self._ended = None if end is None else self._facts_without_journal()
                self._end = end
            known = self._ended if self._run is None else None
            return {"name": self.name, **(known or self._facts(self._read()))}

    def trial(self, number: int) -> bytes | None:
        """Return all about a trial as JSON; None if it was not planned; errors as `summary`."""
        with self._lock:
            self._read()
            page = trial_page(self.paths, self._timeline, number)
        if page is None:
            return None
        # Without the lock: another store may answer late, and the other views need not wait for it.
        shown = page["attempt"]
        # It was planned again, without slots, if its outcome was found when the run was resumed.
        planned = [one["slots"] for one in page["attempts"] if one["number"] == shown]
        workers = max(map(len, planned), default=0)
        parts = page_of_files(self.paths, self._files, number, shown, workers)
        return msgspec.json.encode({**page, **parts})

    def since(self, mark: str) -> bytes:
        """Return what has changed since a mark as JSON, by columns, with the next mark.

        Args:
            mark: The mark of an earlier answer; '' for everything.

        Raises:
            ExperimentError: The run cannot be read.
        """
        with self._lock:
            run = self._read()
            timeline = self._timeline
            reading, _, number = mark.partition(".")
            known = reading == str(self._reading) and number.isdecimal()
            version = int(number) if known else 0
            changed = timeline.changed_after(version)
            answer = {
                "name": self.name,
                "mark": f"{self._reading}.{timeline.version}",
                "whole": version == 0,
                **self._facts(run),
                **_rows(timeline, changed, run.result.objectives),
                "acquisitions": [
                    (trial, timeline.acquisitions[trial])
                    for trial in changed
                    if trial in timeline.acquisitions
                ],
                "lost": _lost_attempts(timeline, version),
                "slot_events": [
                    (event.at, event.slot, event.what, printable(event.text))
                    for event in _after(timeline.slot_events, version)
                ],
                "selections": [
                    (each.trial, each.accepted, each.holder)
                    for each in _after(timeline.selections, version)
                ],
            }
            if version == 0:
                answer["space"] = shown_space(run.result.space)
            return msgspec.json.encode(answer)

    def importance(self) -> bytes:
        """Return the hyperparameters with their importance as JSON, by objective.

        A single objective has the name ''.

        Raises:
            ExperimentError: The run cannot be read.
        """
        with self._lock:
            run = self._read()
            known, version = self._importance
            if version != run.result.done:
                result = run.result
                parts = {name: result.by(name) for name in result.objectives} or {"": result}
                shares = {name: list(importance_of(part).items()) for name, part in parts.items()}
                known = msgspec.json.encode(shares)
                self._importance = known, result.done
            return known

    def _end_now(self) -> tuple[int, ...] | None:
        """Return what changes when the run ends again after a resume; None if it has not ended."""
        try:
            status = self.paths.result.stat()
        except OSError:  # absent; the reading of the run names any other error
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _facts_without_journal(self) -> dict[str, Any] | None:
        """Return the facts of a run that has ended; None if its summary lacks some of them."""
        summary, manifest = read_summary(self.paths), read_manifest(self.paths)
        if summary is None or summary.problem is not None or summary.target is not None:
            return None  # some trials may be cancelled ones, which do not count
        if summary.trials != manifest.trials:
            return None
        return facts_of_ended(self.paths, manifest, summary)

    def _facts(self, run: Run) -> dict[str, Any]:
        summary = read_summary(self.paths) if run.ended else None
        return facts_of(run, self._timeline, None if summary is None else ended_at(summary))

    def _read(self) -> Run:
        before = self._timeline.version if self._run else -1
        timeline = self._reader.state()
        assert isinstance(timeline, Timeline)
        self._timeline = timeline
        ended = self.paths.result.exists()
        if self._run is None or timeline.version != before or self._run.ended != ended:
            self._run = self._reader.read()
        return self._run

    def _make_timeline(self, paths: RunPaths) -> Timeline:
        self._reading += 1
        return Timeline(paths)


def _after(noted: Sequence[tuple[int, Any]], version: int) -> Iterable[Any]:
    start = bisect_right(noted, version, key=lambda pair: pair[0])
    return (each for _, each in noted[start:])


def _rows(timeline: Timeline, ids: list[int], objectives: Collection[str]) -> dict[str, Any]:
    """Return the rows of some trials by columns; None for what a trial lacks."""
    results = [timeline.ended_trials.get(number) for number in ids]
    trials = [timeline.trials.get(number) for number in ids]
    attempts = [timeline.attempts[number][-1] for number in ids]
    metrics = _names(result.metrics for result in results if result is not None)
    metrics.sort(key=lambda name: name not in objectives)  # objectives first: no chart lacks them
    params = [
        result.params if result is not None else _params(trial)
        for result, trial in zip(results, trials, strict=True)
    ]
    return {
        "columns": {
            "id": ids,
            "status": [
                attempt.status(result) for attempt, result in zip(attempts, results, strict=True)
            ],
            "value": [result and result.value for result in results],
            "seconds": [result and result.seconds for result in results],
            "generation": [timeline.origins[number][0] for number in ids],
            "parent": [timeline.origins[number][1] for number in ids],
            "attempt": [attempt.number for attempt in attempts],
            "slots": [attempt.slots for attempt in attempts],
            "start": [attempt.start for attempt in attempts],
            "end": [attempt.end for attempt in attempts],
            "why": [result and _why(result) for result in results],
        },
        "params": {
            name: [shown_value(p[name]) if name in p else None for p in params]
            for name in _names(params)
        },
        "metrics": {
            name: [_finite(result.metrics.get(name)) if result else None for result in results]
            for name in metrics[:_MOST_METRICS]
        },
    }


def _params(trial: Trial | None) -> dict[str, Any]:
    return {} if trial is None else dict(trial.params)


def _names(mappings: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(name for mapping in mappings for name in mapping))


def _why(result: TrialResult) -> str:
    """Return why a trial failed or was stopped; '' otherwise."""
    if result.error is not None:
        return f"{result.error.kind}: {printable(result.error.message)[:_LONGEST]}"
    return printable(result.reason)[:_LONGEST]


def _finite(value: float | None) -> float | None:
    return value if is_finite(value) else None


def _lost_attempts(timeline: Timeline, version: int) -> list[tuple[Any, ...]]:
    """Return the attempts that were lost of the trials that changed after a version."""
    return [
        (each.trial, each.number, each.slots, each.start, each.end, printable(each.why))
        for trial in timeline.changed_after(version)
        for each in timeline.attempts[trial]
        if each.ending == "lost"
    ]
