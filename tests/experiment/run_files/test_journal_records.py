"""The records of slots, waiting, populations and times in the journal."""

import itertools

import pytest

from experiment.run_files.journal import Journal, read_journal
from experiment.run_files.journal_records import read_records
from experiment.run_files.loading import RunReader
from search.algorithms import Evolution
from search.direction import Direction
from search.sequential.regularized_evolution import RegularizedEvolution
from search.space.spaces import Space
from spark_jobs.messages import Attempt, Hello, Stop, Wait
from tests.experiment.driver.searches import Search, evolution, points
from tests.experiment.runs import begun, make_coordinator
from tests.search.fakes import started


def steady(seed=0):
    return started(
        Evolution,
        Space.of_bounds({"x": [-1.0, 1.0]}),
        seed,
        direction=Direction.MIN,
        popsize=4,
        generations=2,
    )


def ageing(seed=0):
    space = Space.of_bounds({"x": [-1.0, 1.0]})
    return started(RegularizedEvolution, space, seed, samples=12, popsize=4, tournament=2)


@pytest.fixture
def start(tmp_path):
    """Start a search whose clock counts records, with slots that have joined."""
    searches = []

    def start(searcher, *slots, **arguments):
        search = Search(
            tmp_path, searcher, now=map(float, itertools.count(1)).__next__, **arguments
        )
        searches.append(search)
        for slot in slots:
            search.hello(slot)
        return search

    yield start
    for search in searches:
        search.journal.close()


def records(search):
    return list(read_journal(search.paths.journal))


def test_every_record_has_the_time_at_which_the_driver_wrote_it(start):
    search = start(evolution(4, 1), "1.0.0", "1.1.0", retries=1)
    work = search.ask("1.0.0")
    search.ask("1.1.0")
    search.report("1.0.0", work, 1, metric=0.5)
    search.coordinator.ends.slots_lost(["1.1.0"])
    search.run_to_the_end("1.0.0")
    search.coordinator.trials.cancel_rest()
    first, *others = records(search)
    assert first["at"] == begun().at
    assert [record["at"] for record in others] == list(range(1, len(others) + 1))
    read = list(read_records(read_journal(search.paths.journal), "the journal"))
    assert [record.at for record in read] == [first["at"], *range(1, len(others) + 1)]


def test_slots_join_once_with_their_host_and_gpus_and_leave_with_the_reason(start):
    search = start(points(3))
    search.coordinator.hello(Hello(slot="1.0.0", host="a", gpus=("0", "1")))
    search.coordinator.hello(
        Hello(slot="1.0.0", host="a", gpus=("0", "1"), set_aside={"1": "GPU 1 is full"})
    )
    search.coordinator.hello(Hello(slot="1.1.0", host="b"))
    search.coordinator.hello(Hello(slot="1.2.0", host="c", problem="host c: its disk is full"))
    assert [(r["slot"], r["host"], r["gpus"]) for r in search.records("joined")] == [
        ("1.0.0", "a", ["0", "1"]),
        ("1.1.0", "b", []),
    ]
    search.ask("1.1.0")
    search.coordinator.ends.slots_lost(["1.1.0", "1.7.0"])
    search.coordinator.hello(Hello(slot="1.3.0", host="d"))
    assert search.run_to_the_end("1.3.0") == ([0, 1, 2], Stop())
    assert [(r["slot"], r["why"]) for r in search.records("left")] == [
        ("1.1.0", "its executor on host b was lost"),
        ("1.3.0", "nothing is left"),
    ]


def test_a_slot_whose_host_gets_no_more_trials_leaves_with_that_reason(start):
    search = start(points(9), "1.0.0")
    search.coordinator.hello(
        Hello(slot="1.1.0", host="host", problem="host host: its disk is full")
    )
    assert search.ask("1.0.0") == Stop()
    assert [(r["slot"], r["why"]) for r in search.records("left")] == [
        ("1.0.0", "its host gets no more trials")
    ]


def test_a_wait_for_the_end_of_a_generation_is_recorded_once(start):
    search = start(evolution(4, 2), "1.0.0", "1.1.0")
    slow, work = search.ask("1.0.0"), search.ask("1.1.0")
    for _ in range(3):
        work = search.finish("1.1.0", work)
    assert work == search.ask("1.1.0") == Wait()
    assert [(r["slot"], r["why"]) for r in search.records("waiting")] == [("1.1.0", "no trial yet")]
    search.finish("1.0.0", slow)
    work = search.ask("1.1.0")
    assert isinstance(work, Attempt)
    for _ in range(3):
        work = search.finish("1.1.0", work)
    assert work == Wait()
    assert len(search.records("waiting")) == 2


def test_a_slot_whose_gpu_is_set_aside_waits(start):
    search = start(points(9), "1.1.0", slots=2)
    search.ask("1.1.0")
    search.coordinator.hello(
        Hello(slot="1.0.0", host="a", gpus=("0",), set_aside={"0": "GPU 0 is full"})
    )
    assert search.ask("1.0.0") == Wait()
    assert [r["why"] for r in search.records("waiting")] == ["gpu set aside"]


def test_a_slot_waits_for_the_other_attempt_of_its_task(start):
    search = start(points(2), "1.0.0", "1.0.1")
    search.ask("1.0.0")
    work = search.ask("1.0.1")
    assert search.finish("1.0.1", work) == Wait()
    assert [r["why"] for r in search.records("waiting")] == ["nothing left"]


def test_a_slot_waits_if_the_last_trial_avoids_its_host(start):
    search = start(points(1), "1.0.0")
    search.coordinator.hello(Hello(slot="1.1.0", host="other"))
    work = search.ask("1.0.0")
    assert search.fail("1.0.0", work, "machine") == Wait()
    assert [r["why"] for r in search.records("waiting")] == ["host avoided"]


def selections(search):
    found = [s for record in search.records("selected") for s in record["selections"]]
    return [(one["trial"], one["accepted"], one["holder"]) for one in found]


def value_of(trial):
    return float(trial * 7 % 5)


def run(search, slot, until=None):
    """Finish trials until `until` has ended; the values are those of `value_of`."""
    work = search.ask(slot)
    while isinstance(work, Attempt):
        last = work.trial.id
        work = search.finish(slot, work, value_of(last))
        if last == until:
            return


@pytest.mark.parametrize("make", [evolution, steady])
def test_the_selections_give_the_population(start, make):
    searcher = make()
    search = start(searcher, "1.0.0")
    run(search, "1.0.0")
    decided = selections(search)
    assert [trial for trial, _, _ in decided] == list(range(12))
    params = {r["trial"]["id"]: r["trial"]["params"] for r in search.records("planned")}
    population = []
    for trial, accepted, holder in decided:
        if holder is None:
            population.append(trial)
        else:
            better = value_of(trial) <= value_of(holder)  # 'min'; of equals, the newer one
            assert accepted == better
            population[population.index(holder)] = trial if accepted else holder
    assert [params[trial] for trial in population] == searcher.population


def test_a_generation_is_selected_as_a_whole_once_it_has_ended(start):
    search = start(evolution(4, 1), "1.0.0")
    run(search, "1.0.0")
    assert [len(record["selections"]) for record in search.records("selected")] == [4, 4]
    events = [record["event"] for record in records(search)]
    assert events.index("selected") == [n for n, e in enumerate(events) if e == "finished"][3] + 1


def test_trials_that_were_not_run_are_not_selected(start):
    search = start(evolution(4, 1), "1.0.0")
    run(search, "1.0.0", until=4)
    search.coordinator.trials.cancel_rest()
    assert [trial for trial, _, _ in selections(search)] == [0, 1, 2, 3]


@pytest.mark.parametrize("make", [evolution, steady, ageing])
@pytest.mark.parametrize("cut", range(1, 30, 4))
def test_a_driver_that_is_killed_anywhere_leaves_no_trial_without_its_selection(
    tmp_path, make, cut
):
    search = Search(tmp_path, make())
    search.hello("1.0.0")
    run(search, "1.0.0")
    search.journal.close()
    whole = selections(search)
    lines = search.journal.path.read_bytes().splitlines(keepends=True)
    search.journal.path.write_bytes(b"".join(lines[:cut]))
    past = list(read_records(read_journal(search.paths.journal), "the journal"))
    with Journal(search.paths.journal) as journal:
        later = make_coordinator(make(), search.paths, journal)
        later.trials.begin(begun(len(past), 12), past)
        later.hello(Hello(slot="2.0.0", host="host"))
        search.coordinator = later
        run(search, "2.0.0")
        assert RunReader(search.paths).state() == later.trials.state
    assert sorted(selections(search)) == sorted(whole)


def test_a_search_without_a_population_selects_nothing(start):
    search = start(points(3), "1.0.0")
    search.run_to_the_end("1.0.0")
    assert search.records("selected") == []


class Selecting:
    """A searcher with arbitrary selections."""

    total, finished = 1, False

    def __init__(self, selections):
        self.selections = selections

    def ask(self):
        return points(1).ask()

    def tell(self, outcome):
        self.finished = True


@pytest.mark.parametrize("said", [[(0, True, None)], None, 5], ids=repr)
def test_invalid_selections_end_the_search_with_a_message(start, said):
    search = start(Selecting(said), "1.0.0")
    search.finish("1.0.0", search.ask("1.0.0"))
    assert "Selecting.selections" in search.coordinator.trials.problem
