import json
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment.run_files.journal_records import Finished, Planned
from search.trial import Failure, Outcome, Trial
from spark_jobs.messages import (
    LARGEST_MESSAGE,
    MOST_METRICS,
    Attempt,
    Gang,
    Heard,
    Hello,
    MemberAddress,
    Next,
    ProtocolError,
    Report,
    Reports,
    Stop,
    Wait,
    Welcome,
    as_json,
    decode,
    decode_answer,
    encode,
    fit,
    from_json,
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
    Failure,
    kind=st.sampled_from(["user error", "exit", "time", "machine"]),
    message=text,
    traceback=text,
    unreached=st.booleans(),
    of_store=st.booleans(),
)
metrics = st.dictionaries(text, st.floats(), max_size=4)
outcomes = st.builds(
    lambda trial, value, metrics, seconds: Outcome(
        trial, "finished", value, "metric", metrics, seconds=seconds
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
        3,
        "stopped",
        value,
        None if value is None else "metric",
        metrics,
        seconds=1.0,
        reason=reason,
        step=step,
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
reports = st.builds(Report, st.integers(-(2**63), 2**63 - 1), metrics)

GANG = Gang(
    rank=1,
    members=("a:1", "a:2", "b:1"),
    servers=("a:3", "a:4", "b:3"),
    key="key",
    certificate="certificate",
)


@given(attempts)
def test_attempts_survive_the_wire(attempt):
    back = decode_answer(encode(attempt))
    assert back == attempt
    assert [type(value) for value in back.trial.params.values()] == [
        type(value) for value in attempt.trial.params.values()
    ]


@given(st.builds(Trial, st.just(0), st.dictionaries(text, st.floats(), min_size=1)))
def test_trials_that_are_the_same_have_the_same_json_with_nan_too(trial):
    assert as_json(decode(encode(trial), Trial)) == as_json(trial)


@given(attempts, outcomes)
def test_trials_and_outcomes_have_one_form_in_messages_and_in_the_journal(attempt, outcome):
    planned = encode(Planned(attempt.trial, attempt.number, "1.0.0", at=1.0))
    finished = encode(Finished(attempt.number, outcome, at=2.0))
    assert encode(attempt.trial) in planned
    assert encode(attempt.trial) in encode(attempt)
    assert encode(outcome) in finished
    assert encode(outcome) in encode(Next("1.0.0", attempt.number, outcome))
    assert encode(from_json(json.loads(planned), Planned)) == planned
    assert encode(from_json(json.loads(finished), Finished)) == finished


@given(outcomes)
def test_outcomes_survive_the_wire(outcome):
    message = decode(encode(Next("1.0.0", 1, outcome)), Next)
    back = message.outcome
    assert as_json(back) == as_json(outcome)
    assert list(back.metrics) == list(outcome.metrics)
    assert (back.value, back.values) == (outcome.value, outcome.values)
    for name, value in outcome.metrics.items():
        assert back.metrics[name] == value or math.isnan(value)


parts = st.integers(0, 10**9 - 1)
slots = st.builds("{}.{}.{}".format, parts, parts, parts)
counts = st.integers(0, 2**53)


@given(
    st.builds(
        Reports,
        slot=slots,
        trial=counts,
        attempt=counts,
        reports=st.tuples(reports, reports),
        output=text,
    )
)
def test_reports_survive_the_wire_as_standard_json(message):
    data = encode(message)
    assert as_json(decode(data, Reports)) == as_json(message)
    json.loads(data, parse_constant=pytest.fail)


@given(metrics)
def test_reports_survive_their_round_trip(metrics):
    report = decode(encode(Report(1, metrics)), Report)
    for name, value in metrics.items():
        assert report.metrics[name] == value or math.isnan(value)


@given(text)
def test_why_a_trial_is_to_stop_survives_the_wire(reason):
    assert decode(encode(Heard(stop=reason)), Heard).stop == reason


@given(outcomes)
def test_outcomes_are_standard_json(outcome):
    json.loads(encode(outcome), parse_constant=pytest.fail)


@pytest.mark.parametrize("answer", [Wait(), Stop(), Attempt(Trial(0, {}))])
def test_answers_tell_each_other_apart(answer):
    assert decode_answer(encode(answer)) == answer


ADDRESS = MemberAddress(links="host:1", server="host:2")


@pytest.mark.parametrize(
    "message",
    [
        Hello(slot="1.0.0", host="a"),
        Welcome(0.5),
        ADDRESS,
        Next("1.0.0", address=ADDRESS),
        GANG,
        Attempt(Trial(0, {}), gang=GANG),
        Wait(),
        Stop(),
        Reports(slot="1.0.0", trial=0, attempt=1, reports=()),
        Heard(),
    ],
    ids=lambda message: type(message).__name__,
)
def test_fields_that_a_message_does_not_have_are_refused(message):
    fields = as_json(message)
    assert from_json(fields, type(message)) == message
    with pytest.raises(ProtocolError, match="unknown field `other`"):
        from_json(fields | {"other": 1}, type(message))


def test_an_attempt_without_a_gang_has_one_worker_of_rank_0():
    assert (Attempt(Trial(0, {})).rank, Attempt(Trial(0, {})).workers) == (0, 1)
    in_gang = Attempt(Trial(0, {}), gang=GANG)
    assert (in_gang.rank, in_gang.workers) == (1, 3)


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
def test_invalid_messages_are_refused(data):
    with pytest.raises(ProtocolError):
        decode(data, Next)


def test_a_message_is_refused_by_its_length_before_it_is_read():
    data = encode(Heard(stop="a" * (LARGEST_MESSAGE - len(encode(Heard())))))
    assert len(data) == LARGEST_MESSAGE
    with pytest.raises(ProtocolError, match=f"{LARGEST_MESSAGE + 1} bytes, more than"):
        decode(data + b" ", Heard)
    assert decode(data + b" ", Heard, largest=None) == decode(data, Heard)


@pytest.mark.parametrize(
    "slot",
    [
        *("", "1", "1.0", "1.0.0.0", "1..0", "a.b.c", "-1.0.0", "+1.0.0", "1.0.0\\n", " 1.0.0"),
        *("1_0.0.0", "01.0.0", "1.0.1e3", "0x1.0.0", "1.0.999999999999", "\u0661.0.0", "1,0,0"),
    ],
)
def test_odd_forms_of_integers_are_no_slots(slot):
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
        from_json(data, Outcome)
    except ProtocolError:
        return


GOOD = as_json(Outcome(1, "finished", 0.5, "metric", {"metric": 0.5}))
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
        {"metrics": {"a": 10**400}},
        {"metrics": {"a": True}},
        {"metrics": {"a": None}},
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
        from_json(GOOD | change, Outcome)
    assert from_json(GOOD, Outcome).value == 0.5


def test_a_long_traceback_keeps_its_ends_and_fits():
    long = Outcome.failed(0, "user error", "m" * 10**6, "first" + "x" * 10**6 + "last\ud800")
    short = fit(long)
    data = encode(Next("1.0.0", 1, short))
    assert len(data) < LARGEST_MESSAGE
    assert short.error.traceback.startswith("first")
    assert "last" in short.error.traceback
    first, _, last = short.error.traceback.partition("\n...")
    assert len(first) == len(last.partition("...\n")[2])


def test_a_failure_that_is_made_to_fit_keeps_its_other_facts():
    failure = Failure(kind="machine", message="m" * 10**6, unreached=True, of_store=True)
    kept = fit(Outcome(0, "failed", error=failure)).error
    assert (kept.unreached, kept.of_store) == (True, True)


def test_a_long_or_odd_reason_is_made_to_fit():
    long = fit(Outcome(0, "stopped", reason="x" * 10_000 + "\ud800"))
    assert len(long.reason) < 600
    assert decode(encode(long), Outcome) == long


def test_an_outcome_without_empty_fields_is_valid():
    several = {"a": 1.0, "b": 2.0}
    brief = {"trial": 1, "status": "finished", "values": several}
    assert from_json(brief, Outcome) == Outcome(1, "finished", values=several)
    for missing in ("trial", "status"):
        with pytest.raises(ProtocolError):
            from_json({name: part for name, part in brief.items() if name != missing}, Outcome)


@pytest.mark.parametrize(
    ("status", "more"),
    [("finished", {}), ("failed", {"value": 1.0}), ("cancelled", {"values": {"a": 1.0}})],
)
def test_contradictory_outcomes_are_refused(status, more):
    with pytest.raises(ValueError, match="contradicts"):
        Outcome(0, status, **more)


@given(text, st.floats())
def test_changing_the_given_dict_does_not_change_the_trial(name, value):
    given = {name: value}
    trial, report = Trial(0, given), Report(0, given)
    given.clear()
    assert list(trial.params) == list(report.metrics) == [name]
    with pytest.raises(TypeError):
        trial.params[name] = 1


def test_of_many_metrics_those_that_were_reported_last_are_kept():
    last = Report(0, {"loss": 1.0})
    for step in range(1, 3_000):
        last = Report(step, {f"weight {step}": 0.5, "loss": float(step)}).after(last)
    assert last.step == 2_999
    assert len(last.metrics) == MOST_METRICS
    assert last.metrics["loss"] == 2_999
    assert set(last.metrics) - {"loss"} == {f"weight {n}" for n in range(2_001, 3_000)}


def test_a_report_of_too_many_metrics_is_kept_in_part():
    many = Report(1, {f"weight {n}": 0.5 for n in range(2_000)})
    assert list(many.after(many).metrics) == [f"weight {n}" for n in range(MOST_METRICS)]


def test_a_long_hello_is_refused_and_cut_by_its_sender():
    long = "a" * 200_000
    hello = Hello(slot="1.0.0", host=long, problem=long, warnings=(long, "short"), detour=long)
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
    hello = Hello(
        slot="1.0.0",
        host="a",
        problem="no",
        warnings=("w",),
        free_gpus=1,
        gpus=("0",),
        set_aside=aside,
        detour="slow",
    )
    assert decode(encode(hello.cut()), Hello) == hello.cut() == hello


READ = """
import sys

import msgspec

from experiment.run_files.journal_records import Record
from experiment.run_files.manifest import Manifest, Summary
from spark_jobs.communicator.in_step.calls import Call
from spark_jobs.communicator.requests import Reply
from spark_jobs.messages import Answer, Next, Reports

asked = []


def note(frame, event, argument):
    if event == "call" and frame.f_code.co_name == "get_class_annotations":
        asked.append(kind)


sys.setprofile(note)
for kind in (Record, Manifest, Summary, Call, Reply, Answer, Next, Reports):
    try:
        msgspec.json.decode(b"{}", type=kind)
    except msgspec.ValidationError:
        pass
sys.setprofile(None)
print(asked)
"""


def test_messages_with_others_in_them_are_inspected_before_threads_read_them():
    """Otherwise two threads that read the first one at once crash the process."""
    ran = subprocess.run(
        [sys.executable, "-c", READ], stdout=subprocess.PIPE, text=True, check=True
    )
    assert ran.stdout == "[]\n"
