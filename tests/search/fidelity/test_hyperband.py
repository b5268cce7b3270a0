import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.direction import Direction
from search.errors import InvalidArgument
from search.fidelity.hyperband import Hyperband
from search.searcher import Problem, ask_again, drive
from search.sequential.bayesian import DESIGN, LEAST
from search.sequential.evidence import MODELLED
from search.space.spaces import Choice, Float, Integer, Space
from search.space.tried import NONE_LEFT
from search.trial import Evaluated, Outcome
from tests.properties import examples
from tests.search.fakes import all_fail, evaluated_by, outcome, recorded, run_in_any_order, started

PLANE = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
MIXED = Space(
    {
        "rate": Float(1e-4, 1e-1, log=True),
        "optimizer": Choice(["adam", "sgd"]),
        "momentum": Float(0.0, 0.9, when={"optimizer": "sgd"}),
        "units": Integer(4, 64),
    },
    constraint=lambda params: params["units"] % 7 != 0,
)
SMALL = Space({"n": Integer(1, 6)})
LARGE = Space(
    {"n": Integer(1, 9), "m": Integer(0, 20_000, when={"n": 1})},
    constraint=lambda params: params["n"] in {2, 4, 6},
)
"""Too many configurations to count beforehand, of which three are allowed."""
SIZES = [81 + 27 + 9 + 3 + 1, 34 + 11 + 3 + 1, 15 + 5 + 1, 8 + 2, 5]

models = st.sampled_from(["evolution", "gaussian_process"])


def hyperband(space=PLANE, seed=0, **arguments):
    arguments = {"direction": Direction.MIN} | arguments
    return started(Hyperband, space, seed, **arguments)


def bowl(params):
    return (params["x"] - 0.3) ** 2 + (params["y"] - 0.6) ** 2


def after(trial):
    """A bowl that is seen the clearer, the longer a trial trains."""
    return outcome(trial, bowl(trial.params) + abs(params_hash(trial)) / trial.max_steps)


def params_hash(trial):
    return random.Random(repr(dict(trial.params))).gauss(0, 0.1)


def trials_of(searcher, evaluate=after):
    trials = []
    drive(searcher, recorded(evaluate, trials))
    return trials


def configurations(trials):
    return [repr(dict(trial.params)) for trial in trials if trial.parent is None]


def test_with_one_slot_the_brackets_are_those_of_the_paper():
    searcher = hyperband()
    trials = trials_of(searcher)
    assert searcher.total == len(trials) == sum(SIZES)
    steps = sorted(trial.max_steps for trial in trials[: SIZES[0]])
    assert steps == [1] * 81 + [3] * 27 + [9] * 9 + [27] * 3 + [81]
    assert trials[SIZES[0]].max_steps == 3
    assert [trial.max_steps for trial in trials[-5:]] == [81] * 5


def test_the_best_of_a_rung_go_on_with_their_hyperparameters_and_checkpoints():
    trials = trials_of(hyperband())
    for trial in trials:
        if trial.parent is not None:
            parent = trials[trial.parent]
            assert trial.params == parent.params
            assert trial.max_steps == 3 * parent.max_steps
    lowest = [trial for trial in trials if trial.max_steps == 1]
    ranking = sorted(lowest, key=lambda trial: after(trial).value)
    best = {trial.id for trial in ranking[:27]}
    assert {trial.parent for trial in trials[: SIZES[0]] if trial.max_steps == 3} == best


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize("model", ["evolution", "gaussian_process"])
def test_new_configurations_are_better_than_random_ones(model):
    trials = trials_of(hyperband(model=model, seed=1))
    new = [trial for trial in trials if trial.parent is None]
    late = sorted(bowl(trial.params) for trial in new[-40:])
    assert late[20] < 0.03  # the median of random ones is 0.15
    assert min(bowl(trial.params) for trial in trials) < 0.002


@given(model=models, space=st.sampled_from([PLANE, MIXED]), rng=st.randoms(use_true_random=False))
@examples(12)
def test_no_configuration_is_proposed_twice_and_all_are_allowed(model, space, rng):
    searcher = hyperband(space, max_epochs=9, model=model)
    trials = run_in_any_order(searcher, evaluated_by(lambda params: rng.random()), rng)
    new = configurations(trials)
    assert len(new) == len(set(new)) == 9 + 5 + 3
    assert all(space.allows_params(trial.params) for trial in trials)
    assert all(space.decode(space.encode(t.params)).keys() == t.params.keys() for t in trials)


@pytest.mark.parametrize("model", ["evolution", "gaussian_process"])
def test_what_proposes_configurations_learns_of_them_where_their_values_lie(model):
    searcher, learnt, out = hyperband(MIXED, max_epochs=27, model=model), [], []
    take, propose = searcher._proposals.take, searcher._proposals.propose
    searcher._proposals.take = lambda point, *rest: learnt.append(point) or take(point, *rest)
    searcher._proposals.propose = lambda n, others: out.append(others) or propose(n, others)
    trials = [searcher.ask() for _ in range(12)]
    for trial in trials[:11]:
        searcher.tell(outcome(trial, float(trial.id)))
    searcher.ask()
    points = [MIXED.encode(trial.params) for trial in trials]
    assert learnt == points[:11]
    assert out[11] == [(point, 0) for point in points[:11]]


@given(
    model=models,
    space=st.sampled_from([PLANE, MIXED]),
    progressive=st.booleans(),
    rng=st.randoms(use_true_random=False),
    failing=st.sampled_from([0.0, 0.3]),
)
@examples(20)
def test_the_same_calls_give_the_same_trials_asked_or_asked_again(
    model, space, progressive, rng, failing
):
    arguments = {"space": space, "max_epochs": 9, "model": model, "progressive": progressive}
    searcher, events, out = hyperband(**arguments), [], []
    while out or not searcher.finished:
        trial = searcher.ask() if not out or rng.random() < 0.6 else None
        if trial is not None:
            events.append(trial)
            out.append(trial)
        elif out:
            ended = out.pop(rng.randrange(len(out)))
            result = outcome(ended, None if rng.random() < failing else rng.random())
            events.append(result)
            searcher.tell(result)
    rebuilt, resumed = hyperband(**arguments), hyperband(**arguments)
    for number, event in enumerate(events):
        if isinstance(event, Outcome):
            rebuilt.tell(event)
            resumed.tell(event)
        else:
            assert rebuilt.ask() == event
            half = number < len(events) / 2
            assert (ask_again(resumed, event) if half else resumed.ask()) == event
    assert rebuilt.finished
    assert resumed.finished


def test_another_trial_is_not_asked_again():
    before = trials_of(hyperband(max_epochs=9))
    searcher = hyperband(max_epochs=9)
    for trial in before[:9]:
        assert ask_again(searcher, trial) == trial
        searcher.tell(after(trial))
    assert ask_again(searcher, before[3]) != before[3]  # a promotion comes now


@given(rng=st.randoms(use_true_random=False), slots=st.integers(1, 300))
@examples(20)
def test_a_slot_waits_only_while_no_rung_has_a_trial_to_promote(rng, slots):
    searcher, out, count = hyperband(max_epochs=27), [], 0
    scores = {}
    while out or not searcher.finished:
        trial = searcher.ask() if len(out) < slots else None
        if trial is not None:
            out.append(trial)
            count += 1
            continue
        assert out, "nothing is in flight, so there is a trial"
        ended = out.pop(rng.randrange(len(out)))
        scores[ended.id] = rng.random()
        searcher.tell(outcome(ended, scores[ended.id]))
    assert count == searcher.total == 27 + 9 + 3 + 1 + 12 + 4 + 1 + 6 + 2 + 4


def test_with_many_slots_the_best_so_far_is_promoted_before_its_rung_has_ended():
    searcher = hyperband(max_epochs=9)
    trials = [searcher.ask() for _ in range(17)]
    assert searcher.ask() is None
    for trial in trials[:3]:
        searcher.tell(outcome(trial, float(trial.id)))
    assert searcher.ask().parent == 0
    assert searcher.ask() is None


def test_failed_and_stopped_trials_are_not_promoted():
    searcher = hyperband(max_epochs=9)
    results = {}

    def evaluate(trial):
        if trial.id < 4:
            results[trial.id] = outcome(trial, None)
        elif trial.id < 8:
            results[trial.id] = Outcome(trial.id, "stopped", -1.0, reason="step 1: worse")
        else:
            results[trial.id] = after(trial)
        return results[trial.id]

    trials = trials_of(searcher, evaluate)
    assert [trial.parent for trial in trials[9:12]] == [8, 9, None]
    assert searcher.total == len(trials) == (9 + 1 + 1) + (5 + 1) + 3


def test_a_search_whose_trials_all_fail_ends():
    trials = trials_of(hyperband(max_epochs=9), all_fail)
    assert len(trials) == 9 + 5 + 3


def test_a_space_with_few_configurations_ends_the_search():
    searcher = hyperband(SMALL)
    assert searcher.exhausted == NONE_LEFT
    assert searcher.total == 6 + 2 + 1 + 1 + 1
    trials = trials_of(searcher, evaluated_by(lambda params: params["n"]))
    assert sorted(trial.params["n"] for trial in trials if trial.parent is None) == list(
        range(1, 7)
    )
    assert len(trials) == searcher.total


def test_a_space_that_is_too_large_to_count_may_be_used_up_too():
    searcher = hyperband(LARGE, max_epochs=9)
    assert searcher.exhausted is None
    trials = trials_of(searcher, evaluated_by(lambda params: params["n"]))
    assert [trial.params["n"] for trial in trials[3:]] == [2, 2]
    assert (searcher.total, searcher.exhausted) == (5, NONE_LEFT)


def test_a_point_between_two_steps_leaves_the_values_next_to_it():
    space, points = Space({"x": Integer(0, 10, step=5)}), [{"x": 3}, {"x": 10}]
    searcher = hyperband(space, points=points, max_epochs=9)
    trials = trials_of(searcher, evaluated_by(lambda params: params["x"]))
    assert sorted(t.params["x"] for t in trials if t.parent is None) == [0, 3, 5, 10]


def test_a_search_that_has_used_up_its_space_is_resumed():
    searcher, events = hyperband(LARGE, max_epochs=9), []
    while (trial := searcher.ask()) is not None:
        events.append((trial, outcome(trial, trial.params["n"])))
        searcher.tell(events[-1][1])
    resumed = hyperband(LARGE, max_epochs=9)
    for trial, result in events:
        assert ask_again(resumed, trial) == trial
        resumed.tell(result)
    assert (resumed.total, resumed.exhausted) == (5, NONE_LEFT)
    assert resumed.finished


def test_points_come_first():
    points = [{"x": 0.1, "y": 0.2}, {"x": 0.1, "y": 0.2}]
    trials = trials_of(hyperband(points=points, max_epochs=9))
    assert [trial.params for trial in trials[:2]] == points
    with pytest.raises(InvalidArgument, match="at most 17, the number of configurations"):
        hyperband(points=[points[0]] * 18, max_epochs=9)


def progressive(value, **arguments):
    """Run a progressive search with reports; `value` is a function of configuration and step."""
    searcher = hyperband(progressive=True, **arguments)
    judge, trials = searcher.judge, []

    def evaluate(trial):
        trials.append(trial)
        for step in range(trial.max_steps):
            assert judge.report(trial.id, step, value(trial.params, step)) is None
        judge.ended(trial.id, "finished")
        return outcome(trial, value(trial.params, trial.max_steps - 1))

    drive(searcher, evaluate)
    return searcher, trials


def test_trials_stay_short_while_that_does_not_change_their_ranking():
    searcher, trials = progressive(lambda params, step: bowl(params) + 1 / (step + 1))
    assert sorted(trial.max_steps for trial in trials) == [1] * 81 + [3] * 27
    assert searcher.total == 108
    assert searcher.exhausted.startswith("no trial trains for more than 3 epochs, ")


def test_trials_grow_while_that_changes_their_ranking():
    def value(params, step):
        return bowl(params) if step > 1 else -bowl(params)

    searcher, trials = progressive(value)
    longest = max(trial.max_steps for trial in trials)
    assert longest == 9  # the ranking after 9 is that after 3
    assert searcher.exhausted.startswith("no trial trains for more than 9 epochs, ")


@pytest.mark.parametrize("rungs", [1, 2])
def test_trials_that_were_not_compared_do_not_show_that_longer_ones_rank_alike(rungs):
    searcher = hyperband(progressive=True)
    drive(
        searcher,
        lambda trial: all_fail(trial) if trial.max_steps >= 3 ** (rungs - 1) else after(trial),
    )
    assert searcher.finished
    assert searcher.exhausted is None


def test_trials_are_long_where_too_few_are_left_to_compare():
    searcher, trials = progressive(
        lambda params, step: params["n"], space=Space({"n": Integer(1, 5)})
    )
    assert [trial.max_steps for trial in trials] == [1] * 5 + [3, 9, 27, 81]
    assert (searcher.total, searcher.exhausted) == (9, NONE_LEFT)


@pytest.mark.parametrize(("failures", "longest"), [(0, 3), (1, 3), (2, 9)])
def test_a_trial_left_alone_by_failures_goes_on(failures, longest):
    searcher, steps = hyperband(max_epochs=9, progressive=True), []

    def evaluate(trial):
        steps.append(trial.max_steps)
        fails = trial.max_steps == 3 and steps.count(3) <= failures
        return outcome(trial, None if fails else bowl(trial.params))

    drive(searcher, evaluate)
    assert max(steps) == longest
    assert searcher.finished
    assert (searcher.exhausted is None) == (longest == 9)


def test_an_interrupted_search_does_not_show_that_longer_trials_rank_alike():
    searcher = hyperband(progressive=True)
    short = [searcher.ask() for _ in range(81)]
    for trial in short:
        searcher.tell(after(trial))
    longer = [searcher.ask() for _ in range(27)]
    for trial in longer[:2]:
        searcher.tell(after(trial))
    total = searcher.total
    for trial in longer[2:]:
        searcher.tell(Outcome(trial.id, "cancelled"))
    assert (searcher.exhausted, searcher.total) == (None, total)


def test_a_rung_whose_trials_are_none_of_the_latest_or_best_ends_no_search():
    searcher = hyperband(max_epochs=9, model="gaussian_process")
    proposals = searcher._proposals
    for rung, score, count in [(0, 0.0, 160), (2, 9.0, LEAST), (1, 5.0, MODELLED // 2)]:
        for number in range(count):
            proposals.take([number / count, rung / 3], rung, score + number / 1e3)
    point = proposals.propose(DESIGN, [])
    assert all(0 <= unit <= 1 for unit in point)


@given(
    scores=st.lists(st.sampled_from([None, 1.0, 2.0, 3.0]) | st.floats(-9, 9), max_size=60),
    direction=st.sampled_from(Direction),
)
def test_the_population_of_a_rung_is_the_best_of_all_its_points(scores, direction):
    proposals = hyperband(direction=direction)._proposals
    for number, score in enumerate(scores):
        proposals.take([number / 60, 0.5], 0, score)
    known = [(number, score) for number, score in enumerate(scores) if score is not None]
    known.sort(key=lambda pair: (-direction.merit(pair[1]), pair[0]))
    assert list(map(list, proposals._best[0])) == [[n / 60, 0.5] for n, _ in known[:10]]


def test_prior_observations_are_refused():
    known = [Evaluated({"x": 0.1, "y": 0.1}, 1.0)]
    with pytest.raises(InvalidArgument, match="use points="):
        hyperband(known=known)


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_epochs": 1},
        {"reduction": 1},
        {"min_epochs": 0},
        {"min_epochs": 50},
        {"iterations": 0},
        {"model": "tpe"},
        {"progressive": 1},
    ],
)
def test_settings_out_of_range_are_refused(arguments):
    with pytest.raises(InvalidArgument, match=next(iter(arguments))):
        Hyperband(**arguments)


def test_settings_are_described():
    assert Hyperband(max_epochs=9).to_json() == {
        "type": "hyperband",
        "max_epochs": 9,
        "reduction": 3,
        "min_epochs": 1,
        "iterations": 1,
        "model": "evolution",
        "progressive": False,
    }


def test_samples_are_refused():
    with pytest.raises(InvalidArgument, match="samples"):
        Hyperband().start(Problem(space=PLANE, rng=random.Random(0), samples=3))


def test_too_few_epochs_for_a_reduction_are_refused_by_their_own_name():
    with pytest.raises(InvalidArgument, match="^max_epochs: expected at least reduction, 3, got 2"):
        Hyperband(max_epochs=2)
    Hyperband(max_epochs=2, reduction=2)
