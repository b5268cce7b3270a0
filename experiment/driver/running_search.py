"""A search that runs: its parts, put to work and brought to an end."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass

from experiment.display.board import Board
from experiment.display.progress import Progress
from experiment.driver.control import Control
from experiment.driver.coordinator import Coordinator
from experiment.driver.interrupts import Interrupts
from experiment.driver.open_run import OpenRun, keep
from experiment.driver.slot_jobs import SlotJobs
from experiment.results.result import Result, SearchFailed
from experiment.results.text import how_to_resume, printable
from experiment.results.warned import note
from experiment.run_files.manifest import write_result
from experiment.setup.preparation import Prepared
from search.trial import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSearch:
    """The parts of one search.

    Attributes:
        prepared: The search.
        run: Its run.
        coordinator: Hands out its trials.
        jobs: Run its slots.
        board: Writes what TensorBoard shows of it.
        progress: Shows how far it is.
        control: Ends it early.
        interrupts: Ctrl-C and SIGTERM while it runs.
    """

    prepared: Prepared
    run: OpenRun
    coordinator: Coordinator
    jobs: SlotJobs
    board: Board
    progress: Progress
    control: Control
    interrupts: Interrupts

    def to_its_end(self) -> str | None:
        """Run the search, and write and show how it ended, whatever happens.

        Returns:
            Why it ended early; None where it did not.
        """
        problem: str | None = None
        try:
            problem = self.jobs.run(self.coordinator, self._show)
        except KeyboardInterrupt:
            self.control.cancel("interrupted")  # in another thread nobody has
        except BaseException as error:
            problem = f"{type(error).__name__}: {error}"
            raise
        finally:
            self.interrupts.hold()
            if not self.coordinator.done:
                problem = problem or self.control.reason
            self._end(problem)
        return problem

    def answer(self, problem: str | None) -> Result:
        """Return the result of a search that has ended, and say so where it was ended early.

        Args:
            problem: Why it ended early; None where it did not.

        Raises:
            SearchFailed: It could not go on, or every trial failed.
        """
        spec, control = self.prepared.spec, self.control
        result = result_so_far(self.prepared, self.run, self.coordinator, problem)
        if self.interrupts.noted or (problem and problem == control.reason):
            # The user wants what there is.
            resumable = not (spec.grows or control.overtaken)
            note(_end_in_words(problem or "interrupted", result, resumable=resumable))
            return result
        _raise_if_failed(result)
        return result

    def _show(self) -> None:
        self.progress.refresh(self.coordinator.status, self.run.folder.trouble)

    def _end(self, problem: str | None) -> None:
        """Write how the search ended, and show it: each step, whatever becomes of the others."""
        coordinator, board = self.coordinator, self.board
        summary = functools.partial(
            result_so_far, self.prepared, self.run, self.coordinator, problem
        )
        with contextlib.ExitStack() as ending:
            ending.callback(lambda: self.progress.close(coordinator.status, summary()))
            if self.control.overtaken:
                board.abandon()
            else:
                ending.callback(keep, lambda: write_result(self.run.paths, summary()))
                ending.callback(keep, lambda: board.close(summary().objective, coordinator.status))
                keep(coordinator.cancel_rest)


def result_so_far(
    prepared: Prepared, run: OpenRun, coordinator: Coordinator, problem: str | None
) -> Result:
    """Return what there is of a search.

    Args:
        prepared: The search.
        run: Its run.
        coordinator: Has its trials.
        problem: Why it ended early; None where it did not.
    """
    spec, status = prepared.spec, coordinator.status
    return Result(
        coordinator.results,
        spec.settings.goal,
        run.paths.shown(),
        objective=status.objective or spec.settings.optimization_key,
        total=status.total,
        problem=problem,
        space=spec.space,
        target=spec.settings.target,
    )


def _end_in_words(reason: str, result: Result, *, resumable: bool) -> str:
    """Return why a search has ended early, with what, and how to go on with it."""
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
        told = first.error.message == message  # as where nobody can say what the objective is
        details = first.error.traceback if told else _details(first.error)
        message += f"; the first was trial {first.id}" + (f": {details}" if details else "")
    # What a trial printed or raised must not move the terminal's cursor.
    raise SearchFailed(printable(message, keep="\n\t"), result)


def _details(failure: Failure) -> str:
    return f"{failure.message}\n{failure.traceback}" if failure.traceback else failure.message
