"""A running search: runs its parts, and ends them."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass

from experiment.display.board import Board
from experiment.display.progress import Progress
from experiment.driver.coordinator import Coordinator
from experiment.driver.interrupts import INTERRUPTED, Interrupts
from experiment.driver.jobs.slot_jobs import SlotJobs
from experiment.driver.open_run import OpenRun, keep
from experiment.driver.trials.trials import Trials
from experiment.results.result import Result, SearchFailed
from experiment.results.text import how_to_resume, printable
from experiment.results.warned import note
from experiment.run_files.manifest import write_result
from experiment.setup.preparation import Prepared
from search.grouped import spaces_of_groups
from search.searcher import why_exhausted
from search.trial import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSearch:
    """The parts of a running search.

    Attributes:
        prepared: The search.
        run: The search's run.
        coordinator: The coordinator, which gives trials to slots.
        jobs: The slot jobs.
        board: The writer of TensorBoard's files.
        progress: The display of its progress.
        interrupts: The handler of Ctrl-C and SIGTERM, with the control, which can end it early.
    """

    prepared: Prepared
    run: OpenRun
    coordinator: Coordinator
    jobs: SlotJobs
    board: Board
    progress: Progress
    interrupts: Interrupts

    def to_its_end(self) -> str | None:
        """Run the search, and always write and show how it ended.

        Returns:
            Why it ended early; None if it did not.
        """
        problem: str | None = None
        try:
            self.interrupts.allow()
            problem = self.jobs.run(self.coordinator, self._show)
        except KeyboardInterrupt:
            # `Interrupts` cancels in the main thread only.
            self.interrupts.control.cancel(INTERRUPTED)
        except BaseException as error:
            problem = f"{type(error).__name__}: {error}"
            raise
        finally:
            self.interrupts.hold()
            if not self.coordinator.trials.done:
                problem = problem or self.interrupts.control.reason
            elif self.interrupts.control.reason == INTERRUPTED:
                self.interrupts.noted = True  # too late to end it, but the user has to know
            self._end(problem)
        return problem

    def answer(self, problem: str | None) -> Result:
        """Return the result of the search, and tell the user if it was ended early.

        Args:
            problem: Why it ended early; None if it did not.

        Raises:
            SearchFailed: The search could not continue, or every trial failed.
        """
        spec, control = self.prepared.spec, self.interrupts.control
        result = result_so_far(self.prepared, self.run, self.coordinator.trials, problem)
        if self.interrupts.noted or (problem and problem == control.reason):
            # The user wants the trials so far.
            resumable = not (spec.grows or control.overtaken)
            note(_end_in_words(problem or INTERRUPTED, result, resumable=resumable))
            return result
        _raise_if_failed(result)
        return result

    def _show(self) -> None:
        self.progress.refresh(self.coordinator.trials.status, self.run.folder.trouble)

    def _end(self, problem: str | None) -> None:
        """Write and show how the search ended; each step, even if others fail."""
        trials, board = self.coordinator.trials, self.board
        summary = functools.partial(result_so_far, self.prepared, self.run, trials, problem)
        with contextlib.ExitStack() as ending:
            ending.callback(lambda: self.progress.close(trials.status, summary()))
            if self.interrupts.control.overtaken:
                board.abandon()
            else:
                ending.callback(keep, lambda: write_result(self.run.paths, summary()))
                ending.callback(keep, lambda: board.close(summary().objective, trials.status))
                keep(trials.cancel_rest)


def result_so_far(prepared: Prepared, run: OpenRun, trials: Trials, problem: str | None) -> Result:
    """Return the result of the trials so far.

    Args:
        prepared: The search.
        run: The search's run.
        trials: The search's trials.
        problem: Why the search ended early; None if it did not.
    """
    spec, status = prepared.spec, trials.status
    return Result(
        trials.results,
        spec.settings.goal,
        run.paths.shown(),
        objective=status.objective or spec.settings.optimization_key,
        total=status.total,
        problem=problem,
        space=spec.space,
        target=spec.settings.target,
        times=trials.state.times,
        exhausted=why_exhausted(spec.searcher),
        group_spaces=spaces_of_groups(spec.algorithm or {}),
    )


def _end_in_words(reason: str, result: Result, *, resumable: bool) -> str:
    """Return why a search has ended early, its summary, and how to resume it."""
    left = resumable and result.done < result.total
    how = f"; {how_to_resume(result.logdir)}" if left else ""
    return f"{reason}: {result.summary()}{how}"


def _raise_if_failed(result: Result) -> None:
    all_failed = result.trials and len(result.failed) == len(result.trials)
    if result.problem is None and not all_failed:
        return
    message = result.problem or f"all {len(result.trials)} trials failed"
    first = next((trial for trial in result.failed), None)
    if first is not None and first.error is not None:
        is_shown = first.error.message == message  # as for an ambiguous objective
        details = first.error.traceback if is_shown else _details(first.error)
        message += f"; the first was trial {first.id}" + (f": {details}" if details else "")
    # A trial's output or error must not move the terminal's cursor.
    raise SearchFailed(printable(message, keep="\n\t"), result)


def _details(failure: Failure) -> str:
    return f"{failure.message}\n{failure.traceback}" if failure.traceback else failure.message
