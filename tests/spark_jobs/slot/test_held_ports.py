"""Ports that a slot holds, and the addresses and variables for its trial."""

from __future__ import annotations

import contextlib
import json
import socket

import pytest

from spark_jobs.messages import Gang
from spark_jobs.slot.asking import Asking
from spark_jobs.slot.gang_variables import variables_of
from spark_jobs.slot.held_ports import DEFAULT_PORTS, HeldPorts, NoPort, split_address

DRIVER = "127.0.0.1:9"


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
    held = [HeldPorts(DRIVER) for _ in range(50)]
    try:
        addresses = [a for ports in held for a in (ports.address.links, ports.address.server)]
        assert len(set(addresses)) == 100
        for host, port in map(split_address, addresses):
            assert host == "127.0.0.1"
            assert DEFAULT_PORTS[0] <= port <= DEFAULT_PORTS[1]
    finally:
        for ports in held:
            ports.release()


def test_a_held_port_cannot_be_taken_and_a_released_one_can_be_listened_on():
    held = HeldPorts(DRIVER)
    where = split_address(held.address.links)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(where)
    held.release()
    with socket.create_server(where):
        pass


def test_a_range_without_two_free_ports_is_named_with_the_remedy():
    ports = free_range(3)
    held = HeldPorts(DRIVER, ports)
    try:
        with pytest.raises(NoPort) as refused:
            HeldPorts(DRIVER, ports)
        said = f"fewer than 2 free ports from {ports[0]} to {ports[1]} at 127.0.0.1"
        assert said in str(refused.value)
        assert "set spark.experiment.workerPorts" in str(refused.value)
    finally:
        held.release()
    HeldPorts(DRIVER, ports).release()


def test_a_driver_that_has_no_address_is_named():
    with pytest.raises(NoPort, match=r"no route to the driver at nowhere\.invalid:9: "):
        HeldPorts("nowhere.invalid:9")


class Driver:
    """A channel that gives attempts, and notes the addresses that a slot sends."""

    def __init__(self, *attempts):
        self.attempts, self.heard = list(attempts), []

    def next(self, number=0, outcome=None, address=None):
        self.heard.append((number, address))
        return self.attempts.pop(0) if self.attempts else None


def test_a_slot_holds_the_ports_of_its_next_attempt_before_the_present_one_starts():
    driver, held = Driver("first", "second"), []

    def hold():
        held.append(HeldPorts(DRIVER))
        return held[-1]

    asking = Asking(driver, hold)
    assert asking.next() == "first"
    with socket.create_server(split_address(held[0].address.links)):
        assert asking.next(1) == "second"
        assert asking.next(2) is None
    asking.close()
    assert driver.heard == [(0, held[0].address), (1, held[1].address), (2, held[2].address)]
    for ports in held:
        with socket.create_server(split_address(ports.address.server)):
            pass


def test_a_slot_whose_trials_need_no_other_slot_holds_no_ports():
    driver = Driver("first")
    asking = Asking(driver)
    assert (asking.next(), asking.next(1, "outcome")) == ("first", None)
    asking.close()
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
