import collections
import random
import threading

import dehb
import loguru
import pytest

from search.adapters import DehbSearcher
from search.direction import Direction
from search.errors import InvalidArgument
from search.searcher import drive
from search.space.spaces import Choice, Float, Integer, Space
from search.trial import Evaluated
from tests.search.adapters.spaces import AdapterContract, bowl, problem_on
from tests.search.fakes import evaluated_by, outcome
from tests.search.searcher_contract import MIXED, RandomSearcherContract

TRAINED = Space.of_bounds({"x": [-5.0, 5.0], "epochs": [1, 27], "y": [-5.0, 5.0]})


def trained(params):
    return bowl(params) * (1 + 1 / params["epochs"])


class TestDehbContract(RandomSearcherContract):
    space = Space({"epochs": Integer(1, 27), **MIXED})
    algorithm = DehbSearcher("epochs")
    samples = total = 60
    examples = 4


class TestDehb(AdapterContract):
    def algorithm(self):
        return DehbSearcher("epochs")


@pytest.fixture
def native(tmp_path):
    yield lambda **arguments: dehb.DEHB(
        n_workers=1, output_path=str(tmp_path), save_freq="end", **arguments
    )
    loguru.logger.remove()  # the log file that it writes, with its thread


@pytest.mark.parametrize("share", [1.0, 0.3, 0.1])
def test_a_constraint_changes_no_number_of_trials_of_a_level(share):
    space = Space(dict(TRAINED), constraint=lambda params: params["x"] <= 10 * share - 5)
    trials = []
    drive(
        DehbSearcher("epochs").start(problem_on(space, 60)),
        lambda t: trials.append(t.params) or outcome(t, trained(t.params)),
    )
    assert all(params["x"] <= 10 * share - 5 for params in trials)
    levels = collections.Counter(params["epochs"] for params in trials)
    assert levels == {1: 27, 3: 18, 9: 12, 27: 3}


@pytest.mark.parametrize("direction", list(Direction))
def test_trials_one_by_one_are_those_of_dehbs_own_loop(native, direction):
    seed = random.Random(4).getrandbits(32)
    optimiser = native(dimensions=2, min_fidelity=1, max_fidelity=27, eta=3, seed=seed)
    expected = []
    for _ in range(120):
        job = optimiser.ask()
        x, y = (-5.0 * (1 - unit) + 5.0 * unit for unit in job["config"])
        expected.append({"x": x, "epochs": round(job["fidelity"]), "y": y})
        loss = -trained(expected[-1])
        optimiser.tell(job, {"fitness": loss, "cost": 1.0})
    trials, problem = [], problem_on(TRAINED, 120, seed=4, direction=direction)
    drive(
        DehbSearcher("epochs").start(problem),
        lambda t: trials.append(t.params) or outcome(t, trained(t.params) * direction.weight),
    )
    assert trials == expected


def test_few_trials_reach_the_largest_fidelity():
    trials = []
    searcher = DehbSearcher("epochs").start(problem_on(TRAINED, 120))
    outcomes = drive(searcher, lambda t: trials.append(t) or outcome(t, trained(t.params)))
    counts = collections.Counter(trial.params["epochs"] for trial in trials)
    assert sorted(counts) == [1, 3, 9, 27]
    assert counts[1] > counts[3] > counts[9] > counts[27] > 0
    assert max(item.value for item in outcomes) > -0.1


def test_real_fidelities_stay_within_their_bounds():
    space = Space({"x": Float(-5.0, 5.0), "y": Float(-5.0, 5.0), "share": Float(0.1, 1.0)})
    trials = []
    searcher = DehbSearcher("share", eta=2).start(problem_on(space, 60))
    drive(searcher, lambda t: trials.append(t) or outcome(t, bowl(t.params)))
    assert sorted({trial.params["share"] for trial in trials}) == [0.125, 0.25, 0.5, 1.0]


def test_there_is_no_barrier():
    searcher = DehbSearcher("epochs").start(problem_on(TRAINED, 200))
    assert None not in [searcher.ask() for _ in range(200)]


def test_a_search_whose_first_trials_all_fail_continues():
    searcher = DehbSearcher("epochs").start(problem_on(TRAINED, 120))
    outcomes = drive(searcher, lambda t: outcome(t, None if t.id < 40 else trained(t.params)))
    assert max(item.value for item in outcomes if item.value is not None) > -5.0


def test_prior_observations_are_in_the_population():
    point = {"x": 1.0, "epochs": 1, "y": -2.0}
    known = [Evaluated(point | {"x": 1 + i / 100}, -i / 100) for i in range(40)]
    means = []
    for evaluated in ([], known):
        searcher = DehbSearcher("epochs").start(problem_on(TRAINED, 27, known=evaluated))
        outcomes = drive(searcher, evaluated_by(bowl))
        means.append(sum(item.value for item in outcomes) / 27)
    assert means[1] > means[0]


def test_prior_observations_that_failed_replace_no_member():
    def first_of(known):
        searcher = DehbSearcher("epochs").start(problem_on(TRAINED, 27, known=known))
        return [searcher.ask() for _ in range(27)]

    failed = Evaluated({"x": 1.0, "epochs": 1, "y": -2.0}, None)
    assert first_of([failed] * 27) == first_of([])


def test_no_file_is_written_and_no_thread_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = set(threading.enumerate())
    drive(DehbSearcher("epochs").start(problem_on(TRAINED, 60)), evaluated_by(trained))
    assert list(tmp_path.iterdir()) == []
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize(
    "space",
    [
        {"x": Float(0.0, 1.0)},
        {"x": Float(0.0, 1.0), "epochs": Choice([1, 3, 9])},
        {"x": Integer(0, 1), "epochs": Integer(1, 9, when={"x": 1})},
    ],
)
def test_the_fidelity_is_a_number_of_the_space(space):
    with pytest.raises(InvalidArgument, match="fidelity: expected the name of a number"):
        DehbSearcher("epochs").start(problem_on(Space(space), 10))


@pytest.mark.parametrize("fidelity", [Integer(0, 9), Integer(3, 3), Float(-1.0, 1.0)])
def test_the_bounds_of_the_fidelity_are_above_zero_and_differ(fidelity):
    space = Space({"x": Float(0.0, 1.0), "epochs": fidelity})
    with pytest.raises(InvalidArgument, match="'epochs' between different bounds above zero"):
        DehbSearcher("epochs").start(problem_on(space, 10))


def test_a_fidelity_of_a_single_level_is_refused():
    space = Space({"x": Float(0.0, 1.0), "epochs": Integer(9, 20)})
    said = "fidelity: expected 'epochs' with at least two levels, .*got 20 alone; lower its low"
    with pytest.raises(InvalidArgument, match=said):
        DehbSearcher("epochs").start(problem_on(space, 10))


@pytest.mark.parametrize("fidelity", [Integer(1, 1000, step=333), Float(0.1, 1.0, step=0.9)])
def test_levels_that_are_the_same_once_rounded_are_refused(fidelity):
    space = Space({"x": Float(0.0, 1.0), "epochs": fidelity})
    said = r"fidelity: expected levels of 'epochs' that ascend, got \[.*; use a smaller step"
    with pytest.raises(InvalidArgument, match=said):
        DehbSearcher("epochs").start(problem_on(space, 10))


def test_the_smallest_level_may_lie_above_the_low_bound():
    space = Space({"x": Float(0.0, 1.0), "epochs": Integer(2, 30)})
    trials = []
    searcher = DehbSearcher("epochs").start(problem_on(space, 60))
    drive(searcher, lambda t: trials.append(t) or outcome(t, t.params["x"]))
    assert sorted({trial.params["epochs"] for trial in trials}) == [3, 10, 30]


def test_there_is_something_to_search_besides_the_fidelity():
    with pytest.raises(InvalidArgument, match="hyperparameters besides the fidelity"):
        DehbSearcher("epochs").start(problem_on(Space({"epochs": Integer(1, 9)}), 10))


@pytest.mark.parametrize("arguments", [{"fidelity": 3}, {"fidelity": "epochs", "eta": 1}])
def test_the_settings_are_checked(arguments):
    with pytest.raises(InvalidArgument, match=list(arguments)[-1]):
        DehbSearcher(**arguments)


def test_the_manifest_distinguishes_settings():
    assert DehbSearcher("epochs").to_json() == {"type": "dehb", "fidelity": "epochs", "eta": 3}
