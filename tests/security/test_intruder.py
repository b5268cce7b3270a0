"""What another user of the host can read of a search from Spark, whose ports all users reach."""

from __future__ import annotations

import os
import re

import pytest

import experiment
from experiment.driver.jobs import slot_jobs
from spark_jobs.channel.grpc_channel import ChannelServer
from tests.experiment.waiting import processes_in, wait_until
from tests.security.intruder import steal, stranger
from tests.servers.clusters import CLUSTER, MEMORY
from tests.whole_searches.executors.test_doctor import examine, only

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")

RECIPE = "learning rate of nobody else"
UNKNOWN = "Expected SaslMessage|Unknown challenge message"
"""Spark's answer to clients without its secret."""
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


train.__module__ = "__main__"  # so that it is pickled by value


@pytest.fixture
def addresses(monkeypatch):
    """The addresses of the channels of searches and examinations, with their secrets."""
    found = []

    class Server(ChannelServer):
        def __enter__(self):
            server = super().__enter__()
            found.append(self.address)
            return server

    monkeypatch.setattr(slot_jobs, "ChannelServer", Server)
    monkeypatch.setattr("experiment.diagnosis.examiner.ChannelServer", Server)
    return found


def secrets_of(addresses):
    """Return the secrets that would let a stranger in, by name."""
    found = {"train function": RECIPE}
    for address in addresses:
        found[f"token of {address.target}"] = address.token
        found[f"certificate of {address.target}"] = address.certificate
    return found


def block_managers(spark):
    """Return the block managers' addresses of driver and executors; a stranger tries all ports."""
    names = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().keysIterator()
    found = []
    while names.hasNext():
        found.append(str(names.next()))
    return found


def stolen(spark, folder):
    """Return the answers to a stranger during a search and after an examination."""
    assert only(examine(spark, folder / "runs", train=train), "slots").level == "ok"
    handle = experiment.submit(
        experiment.launch, spark, train, {"x": [1.0, 2.0], "folder": [str(folder)]},
        logdir=folder / "runs", **QUIET,
    )  # fmt: skip
    try:
        wait_until(lambda: processes_in(folder) or handle.status() != "running")
        return steal(block_managers(spark), stranger())
    finally:
        (folder / "release").touch()
        assert [trial.value for trial in handle.result(timeout=120).trials] == [1.0, 2.0]


LOCAL = ("local[2]", {})
LOCAL_CLUSTER = (CLUSTER, MEMORY)


@pytest.mark.filterwarnings("ignore:any user of Spark's hosts")
@pytest.mark.parametrize(
    ("master", "settings"),
    [
        pytest.param(*LOCAL, id="local", marks=(pytest.mark.slow, pytest.mark.contract)),
        pytest.param(*LOCAL_CLUSTER, id="local-cluster", marks=pytest.mark.slow),
    ],
)
def test_blocks_of_spark_hold_no_secret(sparks, tmp_path, addresses, master, settings):
    spark = sparks.get(master, **settings, **{"spark.authenticate": "false"})
    answers = stolen(spark, tmp_path)
    blocks = {(a["from"], name): data for a in answers for name, data in a["blocks"].items()}
    assert blocks, answers
    assert any(b"spark_jobs" in data for data in blocks.values()), "no closure is there"
    assert len(answers) == (1 if master == LOCAL[0] else 3)  # driver and executors
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


@pytest.mark.parametrize(
    ("session", "managers"),
    [
        pytest.param("spark", 1, id="local", marks=(pytest.mark.slow, pytest.mark.contract)),
        pytest.param("cluster", 3, id="local-cluster", marks=pytest.mark.slow),
        pytest.param("two_hosts", 3, id="standalone", marks=pytest.mark.slow),
    ],
)
def test_with_authentication_spark_refuses_strangers(tmp_path, request, session, managers):
    answers = stolen(request.getfixturevalue(session), tmp_path)
    assert [answer["blocks"] for answer in answers] == [{}] * managers
    for answer in answers:
        assert answer["refusals"]
        assert all(re.search(UNKNOWN, words) for words in answer["refusals"]), answer
