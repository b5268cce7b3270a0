"""A session of Spark Connect with given settings and answers of its server."""

from __future__ import annotations

import time
from types import SimpleNamespace

import grpc
import pytest
from pyspark.sql.connect.client import DefaultChannelBuilder

from experiment.diagnosis.examiner import Examiner
from search.errors import InvalidArgument
from spark_jobs import time_limits
from spark_jobs.session import connect
from spark_jobs.session.connect import ConnectSession

GPUS = {"spark.executor.resource.gpu.amount": "2", "spark.task.resource.gpu.amount": "1"}
EIGHT = {"spark.executor.cores": "8"}


class Refused(grpc.RpcError):
    def __init__(self, details):
        self._details = details

    def code(self):
        return grpc.StatusCode.INTERNAL

    def details(self):
        return self._details


class FakeSession(ConnectSession):
    """A session without a server: only its settings are used."""

    on_this_host = False

    def __init__(self, cores=2, master="yarn", **settings):
        self.master, self._cores_there, self._settings = master, cores, settings
        self._spark = SimpleNamespace(is_stopped=False)
        self._seen, self._gone, self._refusals = time.monotonic(), False, 0
        self.answers = []

    def _cores(self):
        return self._cores_there

    def _interrupt(self, tag):
        if (answer := self.answers.pop(0)) is not None:
            raise answer


def test_zero_gpus_per_trial_hide_all_gpus():
    session = FakeSession()
    assert not session.asking(None, 1).assigns_gpus
    asking = session.asking(0, 1)
    assert asking.assigns_gpus  # so slots hide all
    assert asking.task_needs == session.task_needs
    assert not session.assigns_gpus
    with pytest.raises(InvalidArgument, match="gpus_per_trial: expected left out"):
        FakeSession(**GPUS).asking(0, 1)


@pytest.mark.parametrize(
    ("session", "slots"),
    [
        (FakeSession(8), 8),
        (FakeSession(8, **GPUS, **EIGHT), 2),
        (FakeSession(24, **GPUS, **EIGHT), 6),
        (FakeSession(8, **GPUS | {"spark.task.resource.gpu.amount": "0.5"}, **EIGHT), 4),
        (FakeSession(2, **GPUS, **EIGHT), 1),  # what Spark says before an executor is there
        (FakeSession(8, "spark://host:7077", **GPUS), 2),
        (FakeSession(8, "spark://host:7077", **GPUS, **{"spark.executor.instances": "3"}), 6),
        (FakeSession(8, "local-cluster[2,4,1024]", **GPUS), 4),
    ],
)
def test_slots_are_no_more_than_gpus_are_enough_for(session, slots):
    assert session.task_slots() == slots


def test_cores_that_are_left_over_in_executors_are_no_slots():
    session = FakeSession(6, "local-cluster[2,3,1024]", **{"spark.task.cpus": "2"})
    assert session.task_slots() == 2


def test_slots_before_an_executor_of_many_cores_has_registered():
    session = FakeSession(2, "spark://host:7077", **{"spark.executor.cores": "4"})
    assert session.task_slots() == 2


def test_a_server_on_this_host_counts_its_processors_itself():
    class Here(FakeSession):
        on_this_host = True

    assert Here(3, "local[*]").task_slots() == 3  # as in a container with a share of processors
    settings = {"spark.executor.cores": "4096"}  # left over from another cluster
    assert Here(3, "local[*]", **settings).task_slots() == 3


def test_the_number_of_slots_is_final_only_where_settings_limit_it():
    assert FakeSession(2, "local[*]").may_get_more_slots  # the cores of the server's host
    assert FakeSession(2, "spark://host:7077").may_get_more_slots
    assert not FakeSession(2, "local[2]").may_get_more_slots
    assert not FakeSession(
        2, "yarn", **EIGHT, **{"spark.executor.instances": "3"}
    ).may_get_more_slots


def stopped(session):
    session._seen = -time_limits.SERVER_LOOK  # long ago
    return session.stopped


@pytest.mark.parametrize("reason", ["SESSION_CLOSED", "SESSION_CHANGED", "SESSION_NOT_FOUND"])
def test_a_session_that_its_server_has_ended_is_stopped_at_once(reason):
    session = FakeSession()
    session.answers = [Refused(f"[INVALID_HANDLE.{reason}] The handle is invalid.")]
    assert stopped(session)
    assert stopped(session)


@pytest.mark.parametrize("odd", [Refused("RST_STREAM"), Refused(None), ValueError("a token")])
def test_a_session_is_stopped_only_after_many_odd_answers_in_a_row(odd):
    most, session = connect._REFUSALS, FakeSession()
    session.answers = [*[odd] * (most - 1), None, *[odd] * most]
    assert [stopped(session) for _ in range(2 * most)] == [False] * (2 * most - 1) + [True]


@pytest.mark.parametrize(("most", "asked"), [("5", 20), (None, 256)])
def test_doctor_examines_all_slots_of_an_unknown_number_of_executors(most, asked):
    dynamic = {"spark.dynamicAllocation.enabled": "true", "spark.executor.cores": "4"}
    if most is not None:
        dynamic["spark.dynamicAllocation.maxExecutors"] = most
    assert Examiner(session=FakeSession(**dynamic), timeout=1.0, modules=())._slots() == asked


AUTHENTICATED = {"spark.authenticate": "true"}
TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"


@pytest.mark.parametrize(
    ("address", "settings", "off"),
    [
        ("sc://localhost:15002", AUTHENTICATED, (TOKEN,)),
        ("sc://127.0.0.1:15002", {}, (TOKEN, "spark.authenticate")),
        ("sc://localhost:15002/;token=abc", AUTHENTICATED, ()),
        ("sc://localhost:15002/;token=abc", {}, ("spark.authenticate",)),
        ("sc://192.0.2.1:15002", AUTHENTICATED, (TOKEN, "use_ssl")),
        ("sc://192.0.2.1:15002/;use_ssl=true", AUTHENTICATED, (TOKEN,)),
        ("sc://192.0.2.1:15002/;token=abc", AUTHENTICATED, ()),  # with which pyspark uses TLS
    ],
)
def test_a_missing_token_and_interception_are_risks(monkeypatch, address, settings, off):
    monkeypatch.delenv(TOKEN, raising=False)
    own = "192.0.2.2" if "192.0.2.1" in address else "127.0.0.1"
    monkeypatch.setattr(ConnectSession, "_own_address", own)
    session = FakeSession(master="local[2]", **settings)
    session._client = SimpleNamespace(_builder=DefaultChannelBuilder(address))
    assert (session.exposure.off if session.exposure else ()) == off
    monkeypatch.setenv(TOKEN, "abc")
    assert TOKEN not in (session.exposure.off if session.exposure else ())


def test_a_channel_builder_of_the_user_is_not_judged():
    session = FakeSession(master="local[2]", **AUTHENTICATED)
    session._client = SimpleNamespace(_builder=SimpleNamespace(host="host"))
    assert session.exposure is None
