"""Ports that a slot holds, and the addresses and variables for its trial."""

from __future__ import annotations

import contextlib
import json
import socket
from concurrent import futures

import grpc
import pytest

from spark_jobs.addresses import OwnAddress, bound, split_address
from spark_jobs.messages import Gang
from spark_jobs.slot.attempts import Attempts
from spark_jobs.slot.gang.held_ports import DEFAULT_PORTS, HeldPorts, NoPort
from spark_jobs.slot.gang.variables import variables_of

HERE = OwnAddress(socket.AF_INET, "127.0.0.1")


def free_range(size):
    """Return a range of free ports."""
    for first in range(21_000, 30_000, size):
        with contextlib.suppress(OSError):
            for port in range(first, first + size):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first, first + size - 1
    raise AssertionError("no free ports")


def test_fifty_slots_of_a_host_hold_a_hundred_ports_below_those_of_linux():
    held = [HeldPorts(HERE, DEFAULT_PORTS) for _ in range(50)]
    try:
        addresses = [a for ports in held for a in (ports.address.links, ports.address.server)]
        assert len(set(addresses)) == 100
        for host, port in map(split_address, addresses):
            assert host == "127.0.0.1"
            assert DEFAULT_PORTS[0] <= port <= DEFAULT_PORTS[1]
    finally:
        for ports in held:
            ports.close()


@pytest.fixture
def held():
    with contextlib.closing(HeldPorts(HERE, DEFAULT_PORTS)) as held:
        yield held


def test_a_held_port_cannot_be_taken_even_by_a_server(held):
    for shared in (False, True):
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, shared)
            with pytest.raises(OSError, match="in use"):
                other.bind(split_address(held.address.links))


def test_a_trial_listens_on_ports_that_no_other_slot_gets_before_it_does(held):
    for _ in range(2):  # one trial after the other
        held.lend()
        for address in (held.address.links, held.address.server):
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(split_address(address))  # as another slot does
        with socket.create_server(split_address(held.address.links)) as server:
            with socket.create_connection(server.getsockname()), server.accept()[0]:
                pass
        held.take_back()


def test_a_server_of_grpc_as_those_of_tensorflow_listens_on_a_lent_port(held):
    held.lend()
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port(held.address.server)
    server.start()
    assert port == split_address(held.address.server)[1]
    with grpc.insecure_channel(held.address.server) as channel:
        grpc.channel_ready_future(channel).result(timeout=60)
    server.stop(None).wait()


def test_a_lent_port_on_which_another_program_listens_is_noticed(held):
    held.lend()
    with socket.create_server(split_address(held.address.links)):
        with pytest.raises(OSError, match="in use"):
            bound(held.address.links)
    bound(held.address.links).close()


def test_a_range_without_two_free_ports_is_named_with_the_remedy():
    ports = free_range(3)
    held = HeldPorts(HERE, ports)
    try:
        with pytest.raises(NoPort) as refused:
            HeldPorts(HERE, ports)
        said = f"fewer than 2 free ports from {ports[0]} to {ports[1]} at 127.0.0.1"
        assert said in str(refused.value)
        assert "set spark.experiment.workerPorts" in str(refused.value)
    finally:
        held.close()
    HeldPorts(HERE, ports).close()


class Driver:
    """A channel that gives attempts, and notes the addresses that a slot sends."""

    def __init__(self, *attempts):
        self.attempts, self.heard = list(attempts), []

    def next(self, number=0, outcome=None, address=None):
        self.heard.append((number, address))
        return self.attempts.pop(0) if self.attempts else None


def test_a_slot_lends_its_ports_to_each_attempt(held):
    driver = Driver("first", "second")
    attempts = Attempts(driver, held)
    assert attempts.next() == "first"
    with socket.create_server(split_address(held.address.links)):
        pass
    assert attempts.next(1) == "second"
    with socket.create_server(split_address(held.address.links)):
        pass
    assert attempts.next(2) is None
    with pytest.raises(OSError, match="in use"):
        socket.create_server(split_address(held.address.links))
    assert driver.heard == [(number, held.address) for number in range(3)]


def test_a_slot_whose_trials_need_no_other_slot_holds_no_ports():
    driver = Driver("first")
    attempts = Attempts(driver)
    assert (attempts.next(), attempts.next(1, "outcome")) == ("first", None)
    assert driver.heard == [(0, None), (1, None)]


def test_frameworks_find_the_members_by_variables():
    members = ("[fe80::1]:20001", "10.0.0.5:20001")
    servers = ("[fe80::1]:20002", "10.0.0.5:20002")
    gang = Gang(rank=1, members=members, servers=servers, key="key", certificate="certificate")
    variables = variables_of(gang)
    assert json.loads(variables.pop("TF_CONFIG")) == {
        "cluster": {"worker": list(servers)},
        "task": {"type": "worker", "index": 1},
    }
    assert variables == {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "fe80::1",
        "MASTER_PORT": "20002",
    }
    assert variables_of(None) == {}
