"""What another user of the host gets of a search by asking Spark, whose ports all users reach."""

from __future__ import annotations

import contextlib
import os
import secrets

import psutil
import pytest

import experiment
from experiment import slot_jobs
from spark_jobs.channel import ChannelServer
from spark_jobs.mailbox import Mailbox
from tests.conftest import marked_processes
from tests.experiment_tests.test_cluster import CLUSTER, MEMORY
from tests.experiment_tests.test_doctor import examine
from tests.experiment_tests.waiting import processes_in, wait_until
from tests.security_tests.intruder import steal, stranger

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")

RECIPE = "learning rate of nobody else"
QUIET = {"preload": (), "verbose": 0}


def train(x, folder):
    import os
    import pathlib
    import time

    recipe = "learning rate of nobody else"  # a constant of the function, as it is pickled
    pathlib.Path(folder, f"pid-{os.getpid()}").touch()
    while not pathlib.Path(folder, "release").exists():
        time.sleep(0.05)
    return x if recipe else None


train.__module__ = "__main__"  # so that it travels by value


@pytest.fixture
def addresses(monkeypatch):
    """The addresses of the channels of searches, with all their secrets."""
    found = []

    class Server(ChannelServer):
        def __enter__(self):
            server = super().__enter__()
            found.append(self.address)
            return server

    class SeenMailbox(Mailbox):
        def __enter__(self):
            mailbox = super().__enter__()
            found.append(self.address)
            return mailbox

    monkeypatch.setattr(slot_jobs, "ChannelServer", Server)
    monkeypatch.setattr("experiment.examiner.ChannelServer", Server)
    monkeypatch.setattr(slot_jobs, "Mailbox", SeenMailbox)
    return found


def secrets_of(addresses):
    """Return by name what would let a stranger in."""
    found = {"train function": RECIPE}
    for address in addresses:
        for name in ("token", "certificate", "key"):
            if value := getattr(address, name, None):
                found[f"{name} of {type(address).__name__} {len(found)}"] = str(value)
    return found


def ports_of_java():
    """Return the ports on which JVMs of this suite listen."""
    found = set()
    for process in marked_processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() == "java":
                found |= {
                    connection.laddr.port
                    for connection in process.net_connections("tcp")
                    if connection.status == psutil.CONN_LISTEN
                }
    return sorted(found)


def stolen(spark, folder):
    """Return what a stranger gets while a search runs and after an examination."""
    assert examine(spark, folder / "runs", train=train).ok
    handle = experiment.submit(
        experiment.launch, spark, train, {"x": [1.0, 2.0], "folder": [str(folder)]},
        logdir=folder / "runs", **QUIET,
    )  # fmt: skip
    try:
        wait_until(lambda: processes_in(folder) or handle.status() != "running")
        return steal(ports_of_java(), stranger())
    finally:
        (folder / "release").touch()
        assert [trial.value for trial in handle.result(timeout=120).trials] == [1.0, 2.0]


LOCAL = ("local[2]", {})
LOCAL_CLUSTER = (CLUSTER, MEMORY)


@pytest.mark.parametrize(
    ("master", "settings"),
    [
        pytest.param(*LOCAL, id="local"),
        pytest.param(*LOCAL_CLUSTER, id="local-cluster", marks=pytest.mark.slow),
    ],
)
def test_blocks_of_spark_hold_no_secret(sparks, tmp_path, addresses, master, settings):
    answers = stolen(sparks.get(master, **settings), tmp_path)
    blocks = {(a["port"], name): data for a in answers for name, data in a["blocks"].items()}
    assert blocks, "the stranger reaches no block manager"
    assert any(b"spark_jobs" in data for data in blocks.values()), "nor finds a closure there"
    assert {answer["user"] for answer in answers} == {stranger()}
    known = secrets_of(addresses)
    assert len(known) == 5
    found = {
        name
        for name, secret in known.items()
        for form in (secret, secret.replace("\n", "\\n"))
        for data in blocks.values()
        if form.encode() in data
    }
    assert found == set()


def authenticated(sparks, request, mode):
    """Return a session whose processes know each other by a secret."""
    if mode == "standalone":
        return request.getfixturevalue("two_hosts")
    master, settings = {"local": LOCAL, "local-cluster": LOCAL_CLUSTER}[mode]
    secret = {} if mode == "local" else {"spark.authenticate.secret": secrets.token_hex(16)}
    return sparks.get(master, **settings, **secret, **{"spark.authenticate": "true"})


@pytest.mark.parametrize(
    "mode",
    [
        "local",
        pytest.param("local-cluster", marks=pytest.mark.slow),
        pytest.param("standalone", marks=pytest.mark.slow),
    ],
)
def test_with_authentication_spark_refuses_strangers(sparks, tmp_path, request, mode):
    answers = stolen(authenticated(sparks, request, mode), tmp_path)
    assert answers
    assert [answer["blocks"] for answer in answers] == [{}] * len(answers)
    refusals = {words for answer in answers for words in answer["refusals"]}
    assert any("Expected SaslMessage" in words for words in refusals), refusals
