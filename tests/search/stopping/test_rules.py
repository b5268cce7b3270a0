import dataclasses
import json
import math
import pickle
import random
import re
import statistics

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from search.direction import Direction
from search.errors import InvalidArgument
from search.stopping.racing import StudentRacing, WilcoxonRacing
from search.stopping.rules import (
    AnyOf,
    MedianStopping,
    Patience,
    SuccessiveHalving,
    Threshold,
    read_rules,
)
from tests.properties import examples

NO_NUMBERS = [None, math.nan, math.inf, -math.inf]
STATUSES = ["finished", "failed", "stopped", "cancelled"]

numbers = st.integers(-3, 3).map(float) | st.floats(allow_nan=False, allow_infinity=False)
values = numbers | numbers | st.sampled_from(NO_NUMBERS)
directions = st.sampled_from(Direction)
trials = st.integers(0, 5)
reports = st.tuples(st.just("report"), trials, st.integers(0, 12), values)
ends = st.tuples(st.just("ended"), trials, st.sampled_from(STATUSES))
histories = st.lists(reports | reports | reports | ends, max_size=80)
curves = st.lists(st.lists(values, min_size=1, max_size=8), max_size=10)
few = examples(50)


def answers(judge, history):
    """Pass a history to a judge; return its answer to each report."""
    given_ = []
    for kind, trial, *rest in history:
        answer = getattr(judge, kind)(trial, *rest)
        if kind == "report":
            given_.append(answer)
    return given_


def without_ids(given_):
    return [answer and re.sub(r"trial \d+", "trial", answer) for answer in given_]


def decisions(judge, history):
    return [answer is not None for answer in answers(judge, history)]


def negated(history):
    return [
        (kind, trial, rest[0], None if rest[1] is None else -rest[1])
        if kind == "report"
        else (kind, trial, *rest)
        for kind, trial, *rest in history
    ]


def interleaved(curves, rng):
    """Yield the reports of concurrent trials, and their ends, in some order."""
    left = {trial: list(enumerate(curve)) for trial, curve in enumerate(curves)}
    while left:
        trial = rng.choice(list(left))
        if left[trial]:
            yield ("report", trial, *left[trial].pop(0))
        else:
            del left[trial]
            yield ("ended", trial, "finished")


EVERY = [
    MedianStopping(n_startup_trials=1),
    MedianStopping(n_startup_trials=2, n_warmup_steps=2, interval_steps=3),
    SuccessiveHalving(reduction_factor=2),
    SuccessiveHalving(min_resource=2, reduction_factor=3, min_early_stopping_rate=1),
    Threshold(lower=-1.0, n_warmup_steps=2),
    Patience(2, min_delta=0.5),
    StudentRacing(p_threshold=0.5, n_startup_steps=1),
    WilcoxonRacing(p_threshold=0.6, n_startup_steps=1),
]
EACH = pytest.mark.parametrize("rule", EVERY, ids=str)
MIRRORED = {Threshold(lower=-1.0, n_warmup_steps=2): Threshold(upper=1.0, n_warmup_steps=2)}


# The contract of every rule of the list above


@EACH
@given(history=histories, direction=directions)
@few
def test_directions_mirror_each_other(rule, history, direction):
    other = Direction.MIN if direction is Direction.MAX else Direction.MAX
    mirrored = MIRRORED.get(rule, rule).start(other)
    expected = decisions(rule.start(direction), history)
    assert decisions(mirrored, negated(history)) == expected


@EACH
@given(history=histories, direction=directions, ids=st.permutations(range(6)))
@few
def test_ids_of_trials_do_not_matter(rule, history, direction, ids):
    renamed = [(kind, ids[trial], *rest) for kind, trial, *rest in history]
    expected = without_ids(answers(rule.start(direction), history))
    assert without_ids(answers(rule.start(direction), renamed)) == expected


@EACH
@given(history=histories, direction=directions)
@few
def test_the_same_reports_get_the_same_answers(rule, history, direction):
    copy = pickle.loads(pickle.dumps(rule))
    expected = answers(rule.start(direction), history)
    assert answers(copy.start(direction), history) == expected


@EACH
@given(history=histories, other=histories, direction=directions)
@few
def test_judges_of_one_rule_know_nothing_of_each_other(rule, history, other, direction):
    one, two = rule.start(direction), rule.start(direction)
    answers(two, other)
    assert answers(one, history) == answers(rule.start(direction), history)


@EACH
@given(history=histories, direction=directions, value=values)
@few
def test_steps_that_do_not_ascend_change_nothing(rule, history, direction, value):
    judge, disturbed = rule.start(direction), rule.start(direction)
    last = {}
    for event in history:
        expected, got = answers(judge, [event]), answers(disturbed, [event])
        assert got == expected
        if event[0] == "report":
            trial = event[1]
            last[trial] = max(event[2], last.get(trial, 0))
            for step in {0, last[trial]}:
                assert disturbed.report(trial, step, value) == expected[0]


@EACH
@given(history=histories, direction=directions)
@few
def test_a_stopped_trial_gets_the_same_reason_until_it_ends(rule, history, direction):
    judge, reasons, ended = rule.start(direction), {}, set()
    for kind, trial, *rest in history:
        answer = getattr(judge, kind)(trial, *rest)
        if kind == "ended":
            reasons.pop(trial, None)
            ended.add(trial)
        elif trial in ended:
            assert answer is None
        else:
            assert answer == reasons.setdefault(trial, answer) or reasons[trial] is None
            reasons[trial] = answer


@EACH
@given(history=histories, direction=directions, status=st.sampled_from(STATUSES))
@few
def test_only_the_first_end_counts(rule, history, direction, status):
    again = [
        event
        for first in history
        for event in ([first, ("ended", first[1], status)] if first[0] == "ended" else [first])
    ]
    expected = answers(rule.start(direction), history)
    assert answers(rule.start(direction), again) == expected


@EACH
@given(history=histories, direction=directions, data=st.data())
@few
def test_values_that_are_not_finite_are_all_equal(rule, history, direction, data):
    def replaced(value):
        return data.draw(st.sampled_from(NO_NUMBERS)) if value in NO_NUMBERS else value

    other = [
        (*event[:3], replaced(event[3])) if event[0] == "report" else event for event in history
    ]
    expected = answers(rule.start(direction), history)
    assert answers(rule.start(direction), other) == expected


@EACH
@given(history=histories, direction=directions)
@few
def test_reasons_are_one_line_that_begins_with_the_step(rule, history, direction):
    judge, reasons = rule.start(direction), set()
    for event in history:
        for reason in answers(judge, [event]):
            if reason is not None and event[1] not in reasons:
                assert reason.startswith(f"step {event[2]}: ")
                assert "\n" not in reason
                assert len(reason) < 120
                reasons.add(event[1])


@EACH
def test_rules_are_values(rule):
    copy = dataclasses.replace(rule)
    assert copy == rule
    assert hash(copy) == hash(rule)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(rule, dataclasses.fields(rule)[0].name, 7)


@EACH
def test_json_says_type_and_arguments(rule):
    data = json.loads(json.dumps(rule.to_json()))
    kind = {each.__name__: each for each in map(type, EVERY)}[data.pop("type")]
    assert kind(**data) == rule


@EACH
def test_the_end_of_an_unknown_trial_is_ignored(rule):
    judge = rule.start(Direction.MAX)
    judge.ended(3, "cancelled")
    assert judge.report(3, 0, 1.0) is None


# MedianStopping


def finished(judge, *curves):
    for trial, curve in enumerate(curves, start=1000):
        for step, value in enumerate(curve):
            judge.report(trial, step, value)
        judge.ended(trial, "finished")


def test_a_trial_below_the_median_of_finished_ones_is_stopped():
    judge = MedianStopping(n_startup_trials=3).start(Direction.MAX)
    finished(judge, [0.1, 0.6], [0.2, 0.7], [0.3, 0.8])
    assert judge.report(0, 0, 0.2) is None
    assert judge.report(0, 1, 0.65) == "step 1: best 0.65 is below the median 0.7 of 3 trials"


def test_a_trial_above_the_median_is_stopped_where_less_is_better():
    judge = MedianStopping(n_startup_trials=2).start(Direction.MIN)
    finished(judge, [1.0], [0.0])
    assert judge.report(0, 0, 123456.0) == (
        "step 0: best 1.235e+05 is above the median 0.5 of 2 trials"
    )


def test_zero_has_no_sign():
    judge = MedianStopping(n_startup_trials=2).start(Direction.MIN)
    finished(judge, [1.0], [-1.0])
    assert judge.report(0, 0, 1.0) == "step 0: best 1 is above the median 0 of 2 trials"


def test_the_best_value_so_far_counts_and_not_the_latest():
    judge = MedianStopping(n_startup_trials=1).start(Direction.MAX)
    finished(judge, [0.1, 0.5, 0.9])
    assert judge.report(0, 0, 0.6) is None
    assert judge.report(0, 1, 0.0) is None
    assert judge.report(0, 2, 0.0) == "step 2: best 0.6 is below the median 0.9 of 1 trials"


@pytest.mark.parametrize("status", ["failed", "stopped", "cancelled"])
def test_only_finished_trials_count_in_the_median(status):
    judge = MedianStopping(n_startup_trials=1).start(Direction.MAX)
    judge.report(0, 0, 0.9)
    assert judge.report(1, 0, 0.1) is None
    judge.ended(0, status)
    assert judge.report(2, 0, 0.1) is None


def test_no_trial_is_stopped_at_a_step_with_too_few_reports():
    judge = MedianStopping(n_startup_trials=2).start(Direction.MAX)
    finished(judge, [1.0, 1.0], [1.0])
    assert judge.report(0, 1, 0.0) is None
    assert judge.report(1, 0, 0.0) is not None


def test_a_trial_without_a_number_is_stopped_and_counts_as_the_worst():
    judge = MedianStopping(n_startup_trials=1).start(Direction.MAX)
    finished(judge, [math.nan], [0.5], [0.7])
    assert judge.report(0, 0, math.nan) == "step 0: best nan is below the median 0.5 of 3 trials"
    judge = MedianStopping(n_startup_trials=1).start(Direction.MAX)
    finished(judge, [math.nan], [None], [math.inf], [0.5])
    assert judge.report(1, 0, -5.0) is None


def test_trials_are_compared_interval_by_interval():
    judge = MedianStopping(1, n_warmup_steps=10, interval_steps=5).start(Direction.MAX)
    for step in (0, 4, 8, 12, 16):
        judge.report(0, step, step * 1.0)
    judge.ended(0, "finished")
    assert judge.report(1, 9, 0.0) is None
    assert judge.report(1, 10, 12.0) is None
    assert judge.report(1, 13, 0.0) is None
    assert judge.report(1, 15, 0.0) == "step 15: best 12 is below the median 16 of 1 trials"


@given(
    curves=curves,
    direction=directions,
    rng=st.randoms(use_true_random=False),
    startup=st.integers(1, 4),
    warmup=st.integers(0, 4),
    interval=st.integers(1, 4),
)
@few
def test_median_stopping_is_optunas_rule(curves, direction, rng, startup, warmup, interval):
    """All trials report each step; the description of `MedianPruner` word by word."""
    judge = MedianStopping(startup, warmup, interval).start(direction)
    missing = -math.inf if direction is Direction.MAX else math.inf
    worse = (lambda a, b: a < b) if direction is Direction.MAX else (lambda a, b: a > b)
    best_of = max if direction is Direction.MAX else min
    complete, running, stopped = [], {}, set()
    for kind, trial, *rest in interleaved(curves, rng):
        if trial in stopped:
            continue
        if kind == "ended":
            judge.ended(trial, "finished")
            complete.append(running.pop(trial))
            continue
        step, value = rest
        curve = running.setdefault(trial, [])
        curve.append(missing if value in NO_NUMBERS else value)
        others = [other[step] for other in complete if len(other) > step]
        expected = False
        if len(others) >= startup and step >= warmup and (step - warmup) % interval == 0:
            low, high = statistics.median_low(others), statistics.median_high(others)
            expected = worse(best_of(curve), low / 2 + high / 2)
        assert (judge.report(trial, step, value) is not None) == expected
        if expected:
            stopped.add(trial)
            judge.ended(trial, "stopped")


# SuccessiveHalving


def at_first_rung(values, direction=Direction.MAX, **kwargs):
    judge = SuccessiveHalving(**kwargs).start(direction)
    return [judge.report(trial, 1, value) is None for trial, value in enumerate(values)]


@given(
    values=st.lists(numbers, max_size=40),
    direction=directions,
    factor=st.integers(2, 5),
)
@few
def test_the_nth_trial_at_a_rung_continues_if_among_the_best_nth(values, direction, factor):
    went_on = at_first_rung(values, direction, reduction_factor=factor)
    for number, value in enumerate(values, start=1):
        better = sum(direction.better(other, value) for other in values[:number])
        assert went_on[number - 1] == (better < max(1, number // factor))


@given(values=st.lists(values, max_size=40), direction=directions)
@few
def test_the_best_so_far_is_never_stopped(values, direction):
    went_on = at_first_rung(values, direction)
    finite = [None if value in NO_NUMBERS else value for value in values]
    for number, value in enumerate(finite):
        best = not any(direction.better(other, value) for other in finite[:number])
        if value is None:
            assert not went_on[number]
        elif best:
            assert went_on[number]


@given(values=st.lists(numbers, min_size=1, max_size=40, unique=True), factor=st.integers(2, 5))
@few
def test_descending_values_let_one_continue_and_ascending_ones_all(values, factor):
    ascending = at_first_rung(sorted(values), reduction_factor=factor)
    descending = at_first_rung(sorted(values, reverse=True), reduction_factor=factor)
    assert ascending == [True] * len(values)
    assert descending == [True] + [False] * (len(values) - 1)


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_in_random_order_about_one_in_reduction_factor_continues(factor):
    rng = random.Random(0)
    runs = [
        at_first_rung([rng.random() for _ in range(400)], reduction_factor=factor)
        for _ in range(50)
    ]
    assert sum(map(sum, runs)) / (50 * 400) == pytest.approx(1 / factor, rel=0.05)


def test_trials_equal_to_the_best_continue():
    assert at_first_rung([0.5] * 9) == [True] * 9


def test_rungs_lie_at_powers_of_the_reduction_factor():
    judge = SuccessiveHalving(2, 3, 1).start(Direction.MAX)
    for step in range(60):
        assert judge.report(0, step, 1.0) is None
    stopped_at = {}
    for trial, good_until in enumerate([0, 6, 17, 18, 53, 54], start=1):
        for step in range(60):
            reason = judge.report(trial, step, 2.0 if step < good_until else 0.0)
            if reason is not None:
                stopped_at.setdefault(trial, step)
    assert stopped_at == {1: 6, 2: 6, 3: 18, 4: 18, 5: 54, 6: 54}


def test_a_gap_in_steps_crosses_several_rungs_at_once():
    judge = SuccessiveHalving(reduction_factor=2).start(Direction.MAX)
    assert judge.report(0, 5, 0.5) is None  # at rungs 1, 2 and 4
    assert judge.report(1, 2, 0.6) is None
    assert judge.report(1, 3, 0.1) is None
    assert judge.report(1, 4, 0.4) == "step 4: 0.4 is not among the best 1 of 2 trials"


@pytest.mark.parametrize("status", STATUSES)
def test_a_rung_keeps_reports_whatever_the_outcome(status):
    judge = SuccessiveHalving().start(Direction.MIN)
    judge.report(0, 1, 0.5)
    judge.ended(0, status)
    assert judge.report(1, 1, 0.75) == "step 1: 0.75 is not among the best 1 of 2 trials"


@given(
    curves=st.lists(st.lists(numbers, max_size=12), max_size=10),
    direction=directions,
    rng=st.randoms(use_true_random=False),
    resource=st.integers(1, 3),
    factor=st.integers(2, 4),
    rate=st.integers(0, 1),
)
@few
def test_halving_is_optunas_rule(curves, direction, rng, resource, factor, rate):
    """The description of `SuccessiveHalvingPruner` word by word, with `min_resource` given."""
    judge = SuccessiveHalving(resource, factor, rate).start(direction)
    rungs, reached, stopped = {}, {}, set()
    for kind, trial, *rest in interleaved(curves, rng):
        if trial in stopped or kind == "ended":
            continue
        step, value = rest
        expected = False
        while not expected and step >= resource * factor ** (rate + reached.get(trial, 0)):
            rung = rungs.setdefault(reached.get(trial, 0), [])
            rung.append(value)
            rung.sort(reverse=direction is Direction.MAX)
            promotable = rung[max(len(rung) // factor, 1) - 1]
            expected = direction.better(promotable, value)
            reached[trial] = reached.get(trial, 0) + 1
        assert (judge.report(trial, step, value) is not None) == expected
        if expected:
            stopped.add(trial)


# Threshold


@pytest.mark.parametrize("direction", list(Direction))
def test_values_outside_the_bounds_stop_a_trial_in_both_directions(direction):
    judge = Threshold(lower=0.0, upper=1.0).start(direction)
    assert judge.report(0, 0, 0.0) is None
    assert judge.report(0, 1, 1.0) is None
    assert judge.report(0, 2, 1.25) == "step 2: 1.25 is above the threshold 1"
    assert judge.report(1, 2, -0.5) == "step 2: -0.5 is below the threshold 0"


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_values_that_are_not_finite_are_outside_any_bounds(value):
    judge = Threshold(lower=0.0).start(Direction.MIN)
    assert judge.report(0, 3, value) == "step 3: not a finite number"


def test_no_trial_is_stopped_below_the_warmup_steps():
    judge = Threshold(upper=1.0, n_warmup_steps=3).start(Direction.MIN)
    assert judge.report(0, 1, math.nan) is None
    assert judge.report(0, 2, 9.0) is None
    assert judge.report(0, 3, 9.0) is not None


# Patience


def test_reports_without_improvement_are_counted_as_keras_does():
    judge = Patience(2).start(Direction.MAX)
    values = [0.1, 0.3, 0.2, 0.4, 0.4, 0.3]
    reasons = [judge.report(0, 5 * step, value) for step, value in enumerate(values)]
    assert reasons == [None] * 5 + ["step 25: no better than 0.4 for 2 reports"]


def test_an_improvement_is_more_than_min_delta():
    judge = Patience(1, min_delta=0.5).start(Direction.MIN)
    assert judge.report(0, 0, 3.0) is None
    assert judge.report(0, 1, 2.25) is None
    assert judge.report(0, 2, 1.75) == "step 2: no better than 2.25 by more than 0.5 for 1 reports"


def test_values_that_are_no_numbers_improve_nothing():
    judge = Patience(2).start(Direction.MAX)
    assert judge.report(0, 0, math.nan) is None
    assert judge.report(0, 1, math.inf) == "step 1: no better than nan for 2 reports"


@given(
    curve=st.lists(numbers, max_size=30),
    direction=directions,
    patience=st.integers(1, 4),
    min_delta=st.sampled_from([0.0, 0.5, 1.0]),
)
@few
def test_patience_is_keras_early_stopping(curve, direction, patience, min_delta):
    judge = Patience(patience, min_delta).start(direction)
    best, wait = None, 0
    for step, value in enumerate(curve):
        margin = min_delta if direction is Direction.MAX else -min_delta
        wait += 1
        if direction.better(value - margin, best):
            best, wait = value, 0
        stop = wait >= patience
        assert (judge.report(0, step, value) is not None) == stop
        if stop:
            break


# Several rules, arguments


def test_any_of_several_rules_stops_and_all_get_every_report():
    rules = [Threshold(lower=0.0), Patience(2), SuccessiveHalving()]
    judge = AnyOf([rule.start(Direction.MAX) for rule in rules])
    assert judge.report(0, 0, -1.0) == "step 0: -1 is below the threshold 0"
    assert judge.report(1, 1, 0.5) is None
    assert judge.report(2, 1, 0.4) == "step 1: 0.4 is not among the best 1 of 2 trials"
    assert judge.report(1, 2, 0.5) is None
    assert judge.report(1, 3, 0.5) == "step 3: no better than 0.5 for 2 reports"
    judge.ended(1, "stopped")
    assert judge.report(1, 9, -1.0) is None


def test_no_rules_stop_no_trial():
    judge = AnyOf([])
    assert judge.report(0, 0, math.nan) is None
    judge.ended(0, "finished")


RULES = [MedianStopping(), Patience(3)]


@pytest.mark.parametrize(
    ("stopping", "rules"),
    [
        (None, ()),
        ([], ()),
        (RULES[0], (RULES[0],)),
        (RULES, tuple(RULES)),
        (tuple(RULES), tuple(RULES)),
    ],
)
def test_stopping_is_none_a_rule_or_several(stopping, rules):
    assert read_rules(stopping) == rules


@pytest.mark.parametrize(
    ("stopping", "name", "hint"),
    [
        ("median", "stopping", "such as MedianStopping()"),
        (True, "stopping", "such as MedianStopping()"),
        ({"median": 1}, "stopping", "such as MedianStopping()"),
        (MedianStopping, "stopping", "write MedianStopping(...)"),
        ([Patience], "stopping[0]", "write Patience(...)"),
        ([RULES[0], None], "stopping[1]", "such as MedianStopping()"),
        ([RULES], "stopping[0]", "such as MedianStopping()"),
    ],
)
def test_anything_else_is_refused(stopping, name, hint):
    with pytest.raises(InvalidArgument) as caught:
        read_rules(stopping)
    assert (caught.value.name, caught.value.hint) == (name, hint)


NO_INTEGERS = [True, 1.0, math.nan, "1", None, [1]]


@pytest.mark.parametrize(
    ("rule", "name", "values"),
    [
        (MedianStopping, "n_startup_trials", [0, -1, *NO_INTEGERS]),
        (MedianStopping, "n_warmup_steps", [-1, *NO_INTEGERS]),
        (MedianStopping, "interval_steps", [0, *NO_INTEGERS]),
        (SuccessiveHalving, "min_resource", [0, "auto", *NO_INTEGERS]),
        (SuccessiveHalving, "reduction_factor", [1, 0, *NO_INTEGERS]),
        (SuccessiveHalving, "min_early_stopping_rate", [-1, *NO_INTEGERS]),
        (Threshold, "lower", ["0", True, math.nan, math.inf, 10**400, 1j]),
        (Threshold, "upper", ["0", True, math.nan, -math.inf, [1.0]]),
        (Patience, "patience", [0, -1, *NO_INTEGERS]),
        (Patience, "min_delta", [-0.1, math.nan, math.inf, "0", None, True]),
    ],
)
def test_unusable_arguments_are_refused(rule, name, values):
    others = {"patience": 1} if rule is Patience else {}
    for value in values:
        with pytest.raises(InvalidArgument) as caught:
            rule(**{**others, name: value})
        assert caught.value.name == name


@pytest.mark.parametrize("bounds", [{}, {"lower": 1, "upper": 0}, {"n_warmup_steps": 3}])
def test_a_threshold_needs_bounds_in_their_order(bounds):
    with pytest.raises(InvalidArgument, match="Threshold: expected "):
        Threshold(**bounds)


@given(low=numbers, high=numbers)
@few
def test_bounds_of_a_threshold_may_be_equal(low, high):
    assume(low <= high)
    assert Threshold(low, high).to_json()["upper"] == high


def test_defaults_are_those_of_optuna():
    assert MedianStopping() == MedianStopping(
        n_startup_trials=5, n_warmup_steps=0, interval_steps=1
    )
    assert SuccessiveHalving() == SuccessiveHalving(
        min_resource=1, reduction_factor=4, min_early_stopping_rate=0
    )
