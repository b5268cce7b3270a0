"""After any failures of drivers, slots and disks, a resumed run ends like an uninterrupted one."""

from __future__ import annotations

import contextlib
import functools
import json
import resource
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from experiment.results.result import Result
from experiment.run_files import ownership
from experiment.run_files.journal import Journal, read_journal
from experiment.run_files.loading import RunReader, read_run
from experiment.run_files.manifest import write_manifest, write_result
from experiment.run_files.ownership import owned
from experiment.setup.resuming import Past, read_past, reopen
from search.algorithms import Evolution
from search.direction import Direction
from search.errors import InvalidArgument
from search.evolution.population_based import PopulationTraining
from search.grid import GridSearch, PointSearch
from search.space.spaces import Space
from search.stopping.rules import SuccessiveHalving, Threshold
from search.trial import RETRIED, Outcome
from spark_jobs.messages import (
    Attempt,
    Hello,
    Next,
    Report,
    Reports,
    encode,
)
from spark_jobs.run_folder.paths import RunPaths
from spark_jobs.storage.files import LocalFiles
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.local_files import make_folder, write_whole
from spark_jobs.storage.locations import Location
from tests.experiment.runs import begun, make_coordinator, make_manifest, make_spec
from tests.properties import examples
from tests.search.fakes import started

BOUNDS = {"x": [-1.0, 1.0], "y": [1, 9]}
SLOTS = 3
POINTS = [{"x": number / 8, "y": number} for number in range(7)]


def point_search():
    return make_spec("launch", PointSearch(POINTS), None, POINTS, {"type": "points"})


def grid_search():
    space = Space.of_grid({"x": [-0.5, 0.25, 0.5], "y": [1, 5]})
    return make_spec("launch", GridSearch(space), space, algorithm={"type": "grid"})


def _by_generation(kind, name):
    space = Space.of_bounds(BOUNDS)
    searcher = started(kind, space, 7, popsize=4, generations=2)
    return make_spec(name, searcher, space, algorithm={"type": name})


def evolution():
    return _by_generation(functools.partial(Evolution, generational=True), "evolutionary_search")


def steady_state():
    return _by_generation(Evolution, "evolutionary_search")


def population():
    return _by_generation(PopulationTraining, "population_based_training")


def value_of(trial, step=3):
    return trial.params["x"] * step + trial.params["y"] / 10


def ending_of(trial):
    """Return the outcome of an uninterrupted trial."""
    if trial.id % 5 == 3:
        return Outcome.failed(trial.id, "user error", "ValueError: no")
    return finished(trial)


def finished(trial):
    value = value_of(trial)
    return Outcome(trial.id, "finished", value, "metric", {"metric": value}, seconds=0.5)


class Execution:
    """An attempt on a slot: two reports, then its end; it writes its folder like a slot."""

    def __init__(self, paths, work):
        self.work, self.trial = work, work.trial
        self.files = paths.attempt(work.trial.id, work.number)
        assert not self.files.folder.exists(), "an attempt's folder is its own"
        make_folder(self.files.folder)
        write_whole(self.files.trial, encode(work))
        self.step, self.reason = 0, ""

    def report(self, slot):
        self.step += 1
        report = Report(self.step, {"metric": value_of(self.trial, self.step)})
        return Reports(
            slot=slot, trial=self.work.trial.id, attempt=self.work.number, reports=(report,)
        )

    def end(self, outcome=None):
        if outcome is None and self.reason:
            value = value_of(self.trial, self.step)
            metrics = {"metric": value}
            outcome = Outcome(
                self.trial.id,
                "stopped",
                value,
                "metric",
                metrics,
                seconds=0.5,
                reason=self.reason,
                step=self.step,
            )
        self.outcome = outcome or ending_of(self.trial)
        write_whole(self.files.outcome, encode(self.outcome))

    def hand_in(self, slot):
        return Next(slot, self.work.number, self.outcome)


class Driver:
    """One application's work on a run, up to its end, its death or a full disk."""

    def __init__(self, paths, make, stopping, ears, *, resume):
        self.paths, self.search = paths, make()
        root, self.held = Location.parse(paths.root), contextlib.ExitStack()
        self.held.enter_context(owning(root))
        files, past = LocalFiles(), Past()
        if resume:
            past = read_past(files, root, self.search)
            reopen(files, root, past)
        self.journal = Journal(paths.journal, past.segments + 1)
        self.coordinator = make_coordinator(
            self.search.searcher,
            paths,
            self.journal,
            observers=[ears],
            retries=1_000,
            retry_on=(*RETRIED, "memory"),
            stopping=stopping,
            optimization_key="metric",
            now=lambda: (
                1_700_000_000.0
            ),  # for a fixed length of the journal, from which crashes are drawn
        )
        record = begun(len(past.records), self.search.searcher.total)
        self.coordinator.trials.begin(record, past.records, past.left)

    def close(self):
        with contextlib.suppress(OSError):  # if the disk is full
            self.journal.close()
        self.held.close()


def owning(root):
    def fail(reason):
        raise AssertionError(reason)

    return owned(root, HadoopSettings(), "local-1", taken=fail, tell=fail)


class EndedTrials:
    def __init__(self):
        self.results = {}

    def ended(self, result, status):
        self.results[result.id] = result


@contextlib.contextmanager
def room_for(path, size):
    """Limit the files of this process to the size of one file and some more bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def impatient(monkeypatch):
    """Locks of other drivers are not waited for."""
    monkeypatch.setattr(ownership, "_LOCK_TIMEOUT", 0.0)


class Crashes(RuleBasedStateMachine):
    """Drivers and slots that work on a run, and their failures."""

    @initialize(
        make=st.sampled_from([point_search, grid_search, evolution, steady_state, population]),
        stopping=st.sampled_from([(), (Threshold(lower=0.0),), (SuccessiveHalving(1, 2),)]),
    )
    def begin(self, make, stopping):
        self.folder = tempfile.TemporaryDirectory()
        self.paths, self.make = RunPaths(Path(self.folder.name, "run")), make
        self.stopping = stopping
        self.handed_out = set()
        self.kept = {}  # results that an observer received, by trial
        self.orphans = []  # attempts that continue without a driver
        make_folder(self.paths.trials)
        search = make()
        write_manifest(self.paths, make_manifest(search, optimization_key="metric"))
        self.driver = None
        self.start(resume=False)

    def start(self, *, resume=True):
        self.ears = EndedTrials()
        self.driver = Driver(self.paths, self.make, self.stopping, self.ears, resume=resume)
        self.tries, self.running = [0] * SLOTS, [None] * SLOTS
        for slot in range(SLOTS):
            self.driver.coordinator.hello(Hello(slot=self.name(slot), host="host"))

    def name(self, slot):
        return f"1.{slot}.{self.tries[slot]}"

    @property
    def alive(self):
        return self.driver is not None

    # Actions of slots.

    slots = st.integers(0, SLOTS - 1)
    with_driver = precondition(lambda self: self.alive)
    without_driver = precondition(lambda self: not self.alive)

    @with_driver
    @rule(slot=slots)
    def ask_or_send(self, slot):
        """Ask for a trial, report, or send an outcome and ask for the next."""
        self.send(slot, self.message(slot))

    @with_driver
    @rule(slot=slots)
    def run_out_of_memory(self, slot):
        """Fail a trial so that it is retried, and its host is not blamed."""
        if running := self.running[slot]:
            running.end(Outcome.failed(running.trial.id, "memory", "no memory"))
            self.send(slot, running.hand_in(self.name(slot)))

    def message(self, slot):
        """Return a slot's next message, after writing the files that precede it."""
        running, name = self.running[slot], self.name(slot)
        if running is None:
            return Next(name)
        if self.stopping and running.step < 2 and not running.reason:
            return running.report(name)
        running.end()
        return running.hand_in(name)

    def send(self, slot, message):
        if isinstance(message, Reports):
            self.running[slot].reason = self.driver.coordinator.report(message).stop
            return
        answer = self.driver.coordinator.next(message)
        self.running[slot] = None
        self.remember()
        if isinstance(answer, Attempt):
            assert answer.trial.id not in self.kept, "a trial that has ended was handed out"
            assert (answer.trial.id, answer.number) not in self.handed_out
            self.handed_out.add((answer.trial.id, answer.number))
            self.running[slot] = Execution(self.paths, answer)

    def remember(self):
        """Record the ends that observers received, which may never be lost."""
        for trial, result in self.ears.results.items():
            if result.status != "cancelled":
                before = self.kept.setdefault(trial, result)
                assert same(before, result)

    @with_driver
    @rule(slot=slots)
    def lose_the_slot(self, slot):
        if self.running[slot] is not None:
            self.orphans.append(self.running[slot])
        self.driver.coordinator.ends.slots_lost([self.name(slot)])
        self.tries[slot] += 1
        self.running[slot] = None
        self.driver.coordinator.hello(Hello(slot=self.name(slot), host="host"))
        self.remember()

    @precondition(lambda self: self.orphans)
    @rule(data=st.data())
    def end_an_abandoned_attempt(self, data):
        """Write the outcome of an attempt that its driver gave up, or whose driver is dead."""
        orphan = data.draw(st.sampled_from(self.orphans))
        self.orphans.remove(orphan)
        if orphan.reason or not self.stopping:  # unjudged, it would end differently
            orphan.end()

    # Ends of drivers.

    def discard_driver(self):
        self.driver.close()
        self.driver = None
        self.orphans += [running for running in self.running if running is not None]

    @with_driver
    @rule()
    def kill_the_driver(self):
        self.discard_driver()

    @with_driver
    @rule(slot=slots, data=st.data())
    def kill_the_driver_while_it_writes(self, slot, data):
        """The last records are written in part, and no observer received them."""
        path = self.driver.journal.path
        before, heard = path.stat().st_size, dict(self.kept)
        self.send_unanswered(slot, self.message(slot))
        size = data.draw(st.integers(before, path.stat().st_size))
        self.discard_driver()
        with path.open("r+b") as file:
            file.truncate(size)
        written = {
            record["outcome"]["trial"]
            for record in read_journal(self.paths.journal)
            if record["event"] == "finished"
        }
        self.kept = {t: result for t, result in self.kept.items() if t in heard or t in written}

    def send_unanswered(self, slot, message):
        """Send a message whose slot dies with the driver."""
        coordinator = self.driver.coordinator
        orphan, self.running[slot] = self.running[slot], None
        if isinstance(message, Reports):
            self.orphans.append(orphan)
            coordinator.report(message)
        else:
            coordinator.next(message)
        self.remember()

    @with_driver
    @rule(records=st.integers(1, 6))
    def cut_the_power(self, records):
        """The last records are lost, but not the outcomes in trial folders."""
        path = self.driver.journal.path
        self.discard_driver()
        lines = path.read_bytes().splitlines(keepends=True)
        for _ in range(min(records, len(lines))):
            record = json.loads(lines[-1][9:])
            if record["event"] == "finished" and not self.is_left(record):
                break
            if record["event"] == "planned" and self.make is steady_state:
                self.kept.pop(
                    record["trial"]["id"], None
                )  # proposed again from the outcomes of that time
            lines.pop()
        path.write_bytes(b"".join(lines))

    def is_left(self, record):
        outcome = record["outcome"]
        files = self.paths.attempt(outcome["trial"], record["attempt"])
        return outcome["status"] == "cancelled" or files.outcome.exists()

    @with_driver
    @rule(slot=slots, room=st.integers(0, 300))
    def fill_the_disk(self, slot, room):
        """No observer receives records that do not fit into the journal; the search ends."""
        message = self.message(slot)
        with room_for(self.driver.journal.path, room):
            try:
                self.send_unanswered(slot, message)
            except OSError:
                with pytest.raises(OSError, match="too large"):
                    self.driver.journal.append({"event": "planned"})
        self.discard_driver()
        written = {result.id for result in read_run(self.paths).result.trials}
        assert self.ears.results.keys() <= written

    @with_driver
    @rule()
    def end_early(self):
        self.driver.coordinator.trials.cancel_rest()
        self.write_the_end()
        self.discard_driver()

    def write_the_end(self):
        coordinator = self.driver.coordinator
        result = Result(
            coordinator.trials.results, Direction.MAX, str(self.paths.root), problem="interrupted"
        )
        write_result(self.paths, result)

    @without_driver
    @rule()
    def resume(self):
        self.start()
        self.remember()

    @with_driver
    @rule()
    def start_second_driver(self):
        with pytest.raises(InvalidArgument, match="a run with no active driver"):
            Driver(self.paths, self.make, self.stopping, self.ears, resume=True)

    # Invariants.

    @invariant()
    def folder_matches_driver(self):
        if not self.alive:
            return
        run, status = read_run(self.paths), self.driver.coordinator.trials.status
        assert run.result.trials == sorted(status.results, key=lambda result: result.id)
        running = sorted((out.attempt for out in status.running), key=lambda out: out.trial.id)
        assert sorted(run.running, key=lambda out: out.trial.id) == running
        assert max(Counter(result.id for result in status.results).values(), default=1) == 1
        assert not run.ended
        assert RunReader(self.paths).state() == self.driver.coordinator.trials.state

    def teardown(self):
        if not hasattr(self, "folder"):
            return
        with self.folder:
            try:
                self.run_to_the_end()
            finally:
                if self.alive:
                    self.driver.close()

    def run_to_the_end(self):
        if not self.alive:
            self.resume()
        self.finish_all()
        results = {result.id: result for result in self.driver.coordinator.trials.results}
        assert all(same(results[trial], result) for trial, result in self.kept.items())
        assert sorted(results) == list(range(self.driver.search.searcher.total))
        self.folder_matches_driver()
        halving = self.stopping and isinstance(self.stopping[0], SuccessiveHalving)
        if halving or self.make is steady_state:
            return  # depends on the order of outcomes
        expected = uninterrupted(self.make, self.stopping)
        assert {n: (r.params, r.status, r.value) for n, r in results.items()} == expected

    def finish_all(self):
        for _ in range(10 * self.driver.search.searcher.total):
            if self.driver.coordinator.trials.done:
                return
            for slot in range(SLOTS):
                self.ask_or_send(slot)
        raise AssertionError("the search does not come to its end")


def same(result, other):
    return (result.status, result.value, result.logdir) == (
        other.status,
        other.value,
        other.logdir,
    )


def uninterrupted(make, stopping):
    """Return the trials of an uninterrupted search: parameters, status and value."""
    machine = Crashes()
    machine.begin(make, stopping)
    with machine.folder:
        machine.finish_all()
        machine.driver.close()
        results = machine.driver.coordinator.trials.results
    return {result.id: (result.params, result.status, result.value) for result in results}


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.fault(23, 24, 25, 26)
@pytest.mark.usefixtures("impatient")
class TestCrashes(Crashes.TestCase):
    settings = examples(100, stateful_step_count=40)
