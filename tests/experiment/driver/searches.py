"""Searches on simulated slots, with a real journal."""

from collections import Counter

from hypothesis import strategies as st

from experiment.run_files.journal import Journal, read_journal
from search.algorithms import Evolution
from search.direction import Direction
from search.grid import GridSearch, PointSearch
from search.space.spaces import Space
from search.trial import Outcome
from spark_jobs.messages import (
    Attempt,
    Hello,
    Next,
    Report,
    Reports,
    Stop,
)
from spark_jobs.run_folder.paths import RunPaths
from tests.experiment.runs import begun, make_coordinator
from tests.search.fakes import started


class Ears:
    """An observer that reads the journal when it receives a result."""

    def __init__(self, folder):
        self.folder, self.heard = folder, []

    def ended(self, result, status):
        in_journal = [
            record["outcome"]["trial"]
            for record in read_journal(self.folder)
            if record["event"] == "finished"
        ]
        self.heard.append((result, status.objective, in_journal))


class Search:
    """A coordinator with a real journal, called as by the channel's server for slots."""

    def __init__(self, root, searcher, observers=(), **arguments):
        self.paths, self.searcher = RunPaths(root), searcher
        self.journal = Journal(self.paths.journal)
        self.ears, self.warnings = Ears(self.paths.journal), []
        self.coordinator = make_coordinator(
            searcher,
            self.paths,
            self.journal,
            observers=[self.ears, *observers],
            warn=self.warnings.append,
            **arguments,
        )
        self.coordinator.trials.begin(begun(trials=searcher.total))

    def hello(self, slot, **said):
        self.coordinator.hello(Hello(slot=slot, host="host", **said))

    def ask(self, slot):
        return self.coordinator.next(Next(slot))

    def hand_in(self, slot, attempt, outcome):
        return self.coordinator.next(Next(slot, attempt, outcome))

    def finish(self, slot, work, value=1.0, objective="metric"):
        return self.hand_in(slot, work.number, finished(work.trial.id, value, objective))

    def fail(self, slot, work, kind="user error", message="ValueError: no"):
        return self.hand_in(slot, work.number, Outcome.failed(work.trial.id, kind, message))

    def report(self, slot, work, step, output="", **metrics):
        """Forward one report, or only output; return why the trial is to stop."""
        reports = (Report(step, metrics),) if metrics else ()
        message = Reports(
            slot=slot, trial=work.trial.id, attempt=work.number, reports=reports, output=output
        )
        return self.coordinator.report(message).stop

    def run_to_the_end(self, slot):
        """Finish all trials that a slot gets; return their numbers and the last answer."""
        trials = []
        answer = self.ask(slot)
        while isinstance(answer, Attempt):
            trials.append(answer.trial.id)
            answer = self.finish(slot, answer)
        return trials, answer

    def records(self, event):
        return [r for r in read_journal(self.paths.journal) if r["event"] == event]

    @property
    def ended(self):
        return [result.id for result in self.coordinator.trials.results]


def finished(trial, value=1.0, objective="metric"):
    return Outcome(trial, "finished", value, objective, {objective: value}, seconds=0.5)


def points(count):
    return PointSearch([{"x": number} for number in range(count)])


def evolution(popsize=4, generations=2, seed=0):
    return started(
        Evolution,
        Space.of_bounds({"x": [-1.0, 1.0], "y": [1, 9]}),
        seed,
        generational=True,
        direction=Direction.MIN,
        popsize=popsize,
        generations=generations,
    )


def lose_by_the_task(search):
    search.coordinator.ends.slots_lost(["1.0.0"])
    search.hello("1.0.1")
    return "1.0.1"


def lose_by_the_end_of_the_job(search):
    search.coordinator.ends.job_ended(1)
    search.hello("2.0.0")
    return "2.0.0"


def evaluate(trial):
    """Return the same outcome for the same trial, whatever the attempt: every fifth fails."""
    if trial.id % 5 == 3:
        return Outcome.failed(trial.id, "user error", "ValueError: no")
    value = sum(number * number for number in trial.params.values())
    return finished(trial.id, float(value))


class Cluster:
    """Slots that ask, finish, die and repeat messages, one per partition of a job."""

    def __init__(self, search, partitions):
        self.search, self.coordinator = search, search.coordinator
        self.job, self.partitions = 1, partitions
        self.ghosts = []  # messages that lost slots may still send
        self.start_job()

    def start_job(self):
        self.tries = [0] * self.partitions
        self.work = [None] * self.partitions
        self.last = [None] * self.partitions
        for partition in range(self.partitions):
            self.search.hello(self.slot(partition))

    def slot(self, partition):
        return f"{self.job}.{partition}.{self.tries[partition]}"

    def send(self, partition, message, *, answer_arrives=True):
        answer = self.coordinator.next(message)
        self.last[partition] = message
        if answer_arrives:
            self.work[partition] = answer if isinstance(answer, Attempt) else None
        if answer_arrives and self.slot(partition) in self.coordinator.roster.let_go:
            self.replace(partition)

    def message(self, partition):
        work = self.work[partition]
        if work is None:
            return Next(self.slot(partition))
        outcome = evaluate(work.trial)
        return Next(self.slot(partition), work.number, outcome)

    def ask_or_send(self, partition):
        """Ask, or hand in the outcome and ask."""
        self.send(partition, self.message(partition))

    def lose_answer(self, partition):
        self.send(partition, self.message(partition), answer_arrives=False)

    def repeat(self, partition):
        if self.last[partition] is not None:
            self.send(partition, self.last[partition])

    def greet(self, partition):
        self.search.hello(self.slot(partition), warnings=("slow",))

    def leave_ghost(self, partition):
        self.ghosts += [Hello(slot=self.slot(partition), host="host"), self.message(partition)]

    def haunt(self, partition):
        for ghost in self.ghosts[-2 * partition - 2 :]:
            if isinstance(ghost, Hello):
                self.coordinator.hello(ghost)
            else:
                assert self.coordinator.next(ghost) == Stop()

    def die(self, partition):
        self.leave_ghost(partition)
        self.coordinator.ends.slots_lost([self.slot(partition)])
        self.replace(partition)

    def replace(self, partition):
        self.tries[partition] += 1
        self.work[partition] = self.last[partition] = None
        self.search.hello(self.slot(partition))

    def leave(self, partition):
        self.coordinator.slots_decommissioned([self.slot(partition)])

    def end_job(self, partition):
        for number in range(self.partitions):
            self.leave_ghost(number)
        self.coordinator.ends.job_ended(self.job)
        self.job += 1
        self.start_job()

    def finish(self):
        for _ in range(5 * self.search.searcher.total):
            if self.coordinator.trials.done:
                return
            for partition in range(self.partitions):
                self.ask_or_send(partition)


steps = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(
            ["ask_or_send"] * 6
            + ["lose_answer", "repeat", "greet", "die", "die", "end_job", "haunt", "haunt"]
            + ["leave", "leave"]
        ),
    ),
    max_size=60,
)
searchers = st.sampled_from(
    [
        lambda: points(7),
        lambda: GridSearch(Space.of_grid({"x": [1, 2, 3], "y": [4, 5]})),
        lambda: evolution(4, 2),
    ]
)


def assert_journal_adds_up(search):
    """Each attempt was planned once and then either lost or finished; attempts count up."""
    out, ended, attempts = {}, [], Counter()
    for record in read_journal(search.paths.journal):
        match record["event"]:
            case "planned":
                trial = record["trial"]["id"]
                attempts[trial] += 1
                assert record["attempt"] == attempts[trial]
                assert trial not in out
                out[trial] = record
            case "lost":
                lost = out.pop(record["trial"])
                assert (lost["attempt"], lost["slot"]) == (record["attempt"], record["slot"])
            case "finished":
                assert out.pop(record["outcome"]["trial"])["attempt"] == record["attempt"]
                ended.append(record["outcome"]["trial"])
    assert out == {}
    assert ended == search.ended
    assert Counter(ended) == Counter(range(search.searcher.total))
