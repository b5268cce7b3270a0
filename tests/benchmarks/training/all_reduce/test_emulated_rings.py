"""The emulated network of `make bench-training`, and the table."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.benchmarks.training import speed
from tests.benchmarks.training.all_reduce import emulated_network
from tests.benchmarks.training.all_reduce.emulated_network import (
    Network,
    NoNetwork,
    commands,
    namespaces,
)
from tests.benchmarks.training.all_reduce.emulated_rings import (
    WAYS,
    Took,
    Way,
    measure,
    report,
    table,
)

ROOT = os.geteuid() == 0 and all(shutil.which(name) for name in ("ip", "tc"))


@pytest.mark.parametrize(("shape", "links"), [("switch", 4), ("pairs", 6)])
def test_each_link_has_two_ends_and_a_limit_at_each(shape, links):
    found = list(commands("x", 4, shape, "1gbit"))
    assert sum("veth" in command for command in found) == links
    assert sum(command[0] == "tc" and "1gbit" in command for command in found) == 2 * links


@pytest.mark.parametrize("shape", ["switch", "pairs"])
def test_every_command_is_of_a_namespace(shape):
    """So nothing changes the network of the machine."""
    names = set(namespaces("x", 3))
    for command in commands("x", 3, shape, "1gbit"):
        assert command[1] == "-n"
        assert command[2] in names


def test_a_table_has_the_ways_in_their_order():
    found = {
        (way, size): Took(number, 1.0)
        for number, size in ((1.4, "1 MB"), (1234.0, "10 MB"))
        for way in (Way(), Way(rings=2, compress="float16"), Way(servers=1), Way(servers=2))
    }
    assert table(found) == [
        "| ms | 1 MB | 10 MB | processor ms of a process, 10 MB |",
        "| --- | ---: | ---: | ---: |",
        "| 1 ring | 1 | 1,234 | 1 |",
        "| 2 rings, float16 | 1 | 1,234 | 1 |",
        "| parameter server, 1 chunk | 1 | 1,234 | 1 |",
        "| parameter server, 2 chunks | 1 | 1,234 | 1 |",
    ]


@pytest.mark.parametrize(
    ("missing", "user", "why"),
    [("tc", 0, "there is no 'tc'"), ("", 1000, "this process does not run as root")],
)
def test_without_a_tool_or_root_there_is_no_network(monkeypatch, missing, user, why):
    monkeypatch.setattr(shutil, "which", lambda name: None if name == missing else name)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with pytest.raises(NoNetwork, match=why), Network(2, "switch", "1gbit"):
        pass


def test_the_report_of_a_user_is_a_line_that_says_why_it_is_skipped(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert list(report()) == ["skipped: this process does not run as root"]


def test_the_table_of_trainings_ends_with_that_line(monkeypatch, capsys):
    monkeypatch.setattr(speed, "ROWS", [lambda: [speed.Row("a speed", "1.9", ">= 1.8")]])
    monkeypatch.setattr(signal, "signal", lambda *handler: None)  # that of the tests stays
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["training"])
    speed.main()
    assert capsys.readouterr().out.splitlines() == [
        "| measure | value | bar |",
        "| --- | --- | --- |",
        "| a speed | 1.9 | >= 1.8 |",
        "skipped: this process does not run as root",
    ]


def test_namespaces_are_removed_if_one_cannot_be_connected(monkeypatch):
    ran = []

    def run(command):
        ran.append(command)
        if command[0] == "tc":
            raise NoNetwork("tc: unknown qdisc")

    monkeypatch.setattr(emulated_network, "_run", run)
    monkeypatch.setattr(emulated_network, "_remove_old", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(NoNetwork, match="unknown qdisc"), Network(2, "switch", "1gbit"):
        pass
    added, removed = (
        [name for _, what, action, *name in map(list, ran) if (what, action) == ("netns", each)]
        for each in ("add", "delete")
    )
    assert removed == added
    assert len(added) == 3


@pytest.mark.slow
@pytest.mark.skipif(not ROOT, reason="needs root, ip and tc")
@pytest.mark.parametrize("shape", ["switch", "pairs"])
def test_all_ways_sum_on_a_network_that_is_removed_afterwards(shape):
    try:
        found = measure(shape, "1gbit", {"tiny": (101, 1)})
    except NoNetwork as error:
        pytest.skip(str(error))  # a container may forbid it
    assert [way for way, _ in found] == WAYS
    left = Path("/run/netns").glob(f"bench-rings-{os.getpid()}-*")
    assert list(left) == []
