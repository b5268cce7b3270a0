import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.trial import Failure, Outcome, Trial
from spark_jobs.messages import (
    LARGEST_MESSAGE,
    MOST_METRICS,
    Attempt,
    Heard,
    Hello,
    Next,
    ProtocolError,
    Report,
    Reports,
    Stop,
    Wait,
    Work,
    attempt_of,
    decode,
    decode_answer,
    encode,
    fit,
    outcome_of_json,
    outcome_to_json,
    work_of,
)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(text, inner, max_size=3)
    ),
    max_leaves=8,
)
attempts = st.builds(
    Attempt,
    st.builds(
        Trial,
        st.integers(0, 2**40),
        st.dictionaries(text, values, max_size=4),
        st.none() | st.integers(0, 99),
    ),
    st.integers(1, 9),
)
failures = st.builds(
    Failure, st.sampled_from(["user error", "exit", "time", "machine"]), text, text
)
metrics = st.dictionaries(text, st.floats(), max_size=4)
outcomes = st.builds(
    lambda trial, value, metrics, seconds: Outcome(
        trial, "finished", value, "metric", metrics, None, seconds
    ),
    st.integers(0, 2**40),
    st.floats(allow_nan=False, allow_infinity=False),
    metrics,
    st.floats(0, 1e6),
) | st.builds(
    lambda trial, failure: Outcome(trial, "failed", error=failure), st.integers(0, 9), failures
)
outcomes |= st.builds(
    lambda value, metrics, reason, step: Outcome(
        3, "stopped", value, None if value is None else "metric", metrics, None, 1.0, reason, step
    ),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    metrics,
    text,
    st.none() | st.integers(-(2**63), 2**63 - 1),
)
outcomes |= st.builds(
    lambda status, values, metrics: Outcome(3, status, metrics=metrics | values, values=values),
    st.sampled_from(["finished", "stopped"]),
    st.dictionaries(text, st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=3),
    metrics,
)
reports = st.builds(Report.of, st.integers(-(2**63), 2**63 - 1), metrics)


@given(attempts)
def test_work_survives_the_wire(attempt):
    assert attempt_of(decode_answer(encode(work_of(attempt)))) == attempt


@given(outcomes)
def test_outcomes_survive_the_wire(outcome):
    message = decode(encode(Next("1.0.0", 1, outcome_to_json(outcome))), Next)
    back = outcome_of_json(message.outcome)
    assert outcome_to_json(back) == outcome_to_json(outcome)
    assert list(back.metrics) == list(outcome.metrics)
    assert (back.value, back.values) == (outcome.value, outcome.values)
    for name, value in outcome.metrics.items():
        assert back.metrics[name] == value or math.isnan(value)


parts = st.integers(0, 10**9 - 1)
slots = st.builds("{}.{}.{}".format, parts, parts, parts)
counts = st.integers(0, 2**53)


@given(st.builds(Reports, slots, counts, counts, st.tuples(reports, reports), text))
def test_reports_survive_the_wire_as_standard_json(message):
    data = encode(message)
    assert decode(data, Reports) == message
    json.loads(data, parse_constant=pytest.fail)


@given(metrics)
def test_what_was_reported_can_be_read(metrics):
    report = Report.of(1, metrics)
    for name, value in metrics.items():
        assert report.value(name) == value or math.isnan(value)
    assert report.value("no such metric of ours, too long") is None


@given(text)
def test_why_a_trial_is_to_stop_survives_the_wire(reason):
    assert decode(encode(Heard(reason)), Heard).stop == reason


@given(outcomes)
def test_outcomes_are_standard_json(outcome):
    json.dumps(outcome_to_json(outcome), allow_nan=False)


@pytest.mark.parametrize("answer", [Wait(), Stop(), Work(0, 1, {})])
def test_answers_tell_each_other_apart(answer):
    assert decode_answer(encode(answer)) == answer


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b'{"slot": 1}',
        b'{"slot": "1.0.0", "attempt": -1}',
        b'{"slot": "1.0.0", "attempt": 1.5}',
        b'{"slot": "1.0.0", "attempt": 1e400}',
        b'{"slot": "1.0.0", "attempt": %s}' % (b"1" * 4_000),
        b'{"slot": "1.0.0", "outcome": {"value": NaN}}',
        b'{"slot": "1.0.0", "outcome": {"a": %s}}' % (b"[" * 300_000 + b"]" * 300_000),
        b'{"slot": "1.0.0", "outcome": {"a": "\\ud800"}}',
        b'{"slot": "a", "other": 1}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"slot": "' + b"a" * LARGEST_MESSAGE + b'"}',
    ],
    ids=lambda data: str(data[:60]),
)
def test_what_is_no_message_is_refused(data):
    with pytest.raises(ProtocolError):
        decode(data, Next)


@pytest.mark.parametrize(
    "slot",
    [
        *("", "1", "1.0", "1.0.0.0", "1..0", "a.b.c", "-1.0.0", "+1.0.0", "1.0.0\\n", " 1.0.0"),
        *("1_0.0.0", "01.0.0", "1.0.1e3", "0x1.0.0", "1.0.999999999999", "\u0661.0.0", "1,0,0"),
    ],
)
def test_what_int_takes_for_a_number_is_not_yet_a_slot(slot):
    with pytest.raises(ProtocolError, match="slot"):
        decode(f'{{"slot": "{slot}"}}'.encode(), Next)
    assert decode(b'{"slot": "10.0.999999999"}', Next).slot == "10.0.999999999"


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_and_nothing_else(data):
    for kind in (Next, Hello):
        try:
            decode(data, kind)
        except ProtocolError:
            continue


@given(values)
def test_random_json_is_an_outcome_or_refused(data):
    try:
        outcome_of_json(data)
    except ProtocolError:
        return


GOOD = outcome_to_json(Outcome(1, "finished", 0.5, "metric", {"metric": 0.5}))
FAILED = {"status": "failed", "value": None}
ERROR = {"kind": "exit", "message": "", "traceback": ""}


@pytest.mark.parametrize(
    "change",
    [
        {"value": None},
        {"status": "failed"},
        {"status": "failed", "value": None},
        {"status": "failed", "error": {"kind": "exit", "message": "", "traceback": ""}},
        {"status": "done"},
        {"status": "stopped", "error": {"kind": "exit", "message": "", "traceback": ""}},
        {"step": "1"},
        {"step": 2**63},
        {"step": 0.5},
        {"reason": None},
        {"value": "0.5"},
        {"value": True},
        {"trial": "1"},
        {"metrics": {"a": "abc"}},
        {"metrics": [1]},
        {"error": {"kind": "user error"}},
        {"error": {"kind": "other", "message": "", "traceback": ""}},
        {"extra": 1},
        {"values": {"a": 1.0, "b": 2.0}},
        {"value": None, "values": {}},
        {"value": None, "values": {"a": "nan"}},
        {"value": None, "values": None},
        FAILED | {"error": ERROR, "values": {"a": 1.0}},
    ],
    ids=str,
)
def test_outcomes_that_contradict_themselves_are_refused(change):
    with pytest.raises(ProtocolError):
        outcome_of_json(GOOD | change)
    assert outcome_of_json(GOOD).value == 0.5


def test_a_long_traceback_keeps_its_ends_and_fits():
    long = Outcome.failed(0, "user error", "m" * 10**6, "first" + "x" * 10**6 + "last\ud800")
    short = fit(long)
    data = encode(Next("1.0.0", 1, outcome_to_json(short)))
    assert len(data) < LARGEST_MESSAGE
    assert short.error.traceback.startswith("first")
    assert "last" in short.error.traceback


def test_a_long_or_odd_reason_is_made_to_fit():
    long = fit(Outcome(0, "stopped", reason="x" * 10_000 + "\ud800"))
    assert len(long.reason) < 600
    assert outcome_of_json(json.loads(encode(outcome_to_json(long)))) == long


def test_an_outcome_of_one_objective_says_nothing_of_several():
    assert "values" not in GOOD
    several = Outcome(1, "finished", metrics={"a": 1.0, "b": 2.0}, values={"a": 1.0, "b": 2.0})
    assert outcome_to_json(several)["values"] == {"a": 1.0, "b": 2.0}


def test_of_many_metrics_those_that_were_reported_last_are_kept():
    last = Report.of(0, {"loss": 1.0})
    for step in range(1, 3_000):
        last = Report.of(step, {f"weight {step}": 0.5, "loss": float(step)}).after(last)
    assert last.step == 2_999
    assert len(last.metrics) == MOST_METRICS
    assert last.metrics["loss"] == 2_999
    assert set(last.metrics) - {"loss"} == {f"weight {n}" for n in range(2_001, 3_000)}


def test_a_report_of_too_many_metrics_is_kept_in_part():
    many = Report.of(1, {f"weight {n}": 0.5 for n in range(2_000)})
    assert list(many.after(many).metrics) == [f"weight {n}" for n in range(MOST_METRICS)]


def test_long_first_words_are_refused_and_cut_by_who_says_them():
    long = "a" * 200_000
    hello = Hello("1.0.0", long, long, (long, "short"), detour=long)
    with pytest.raises(ProtocolError, match="length <= 300"):
        decode(encode(hello), Hello)
    cut = decode(encode(hello.cut()), Hello)
    assert len(cut.host) == 300
    assert max(map(len, (cut.problem, cut.warnings[0], cut.detour))) < 10_000
    assert cut.warnings[1] == "short"
    for field in ({"gpus": long}, {"gpus": ["0"] * 2_000}, {"set_aside": {"0": long}}):
        with pytest.raises(ProtocolError):
            decode(encode({"slot": "1.0.0", "host": "a", **field}), Hello)


def test_usual_first_words_are_not_changed():
    aside = {"0": "GPU 0 of host a keeps 1.0 GiB"}
    hello = Hello("1.0.0", "a", "no", ("w",), 1, ("0",), aside, "slow")
    assert decode(encode(hello.cut()), Hello) == hello.cut() == hello
