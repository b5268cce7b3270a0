"""Slots that connect to each other, and some that cannot."""

import contextlib
import re
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from experiment.diagnosis.gathering import attempts_of
from spark_jobs.addresses import OwnAddress
from spark_jobs.doctor.meeting import meet
from spark_jobs.slot.gang.held_ports import DEFAULT_PORTS, HeldPorts
from spark_jobs.trial.gang_connections import NotConnected

HERE = OwnAddress(socket.AF_INET, "127.0.0.1")


@pytest.fixture
def held():
    """The ports of three slots."""
    with contextlib.ExitStack() as stack:
        yield {
            f"{number}.0.0": stack.enter_context(contextlib.closing(HeldPorts(HERE, DEFAULT_PORTS)))
            for number in (1, 2, 3)
        }


def work_of(held):
    addresses = {slot: ports.address for slot, ports in held.items()}
    return attempts_of(addresses, {slot: f"node-{slot[0]}" for slot in held})


def test_slots_that_reach_each_other_meet(held):
    work = work_of(held)
    with ThreadPoolExecutor(3) as threads:
        met = list(threads.map(lambda slot: meet(work[slot].gang, held[slot], 60.0), held))
    assert [found.others for found in met] == [2, 2, 2]


def test_a_slot_that_cannot_be_reached_is_named_with_its_port_and_what_to_open(held):
    work = work_of(held)
    others = [held[slot].address.links for slot in ("2.0.0", "3.0.0")]
    with pytest.raises(NotConnected) as refused:
        meet(work["1.0.0"].gang, held["1.0.0"], 0.2)
    said = re.fullmatch(
        r"worker 0 on host 127.0.0.1 does not reach worker . at (\S+) .*; open .*",
        str(refused.value),
    )
    assert said[1] in others


def test_one_slot_of_each_host_takes_part_and_two_where_there_is_one_host(held):
    addresses = {slot: ports.address for slot, ports in held.items()}
    chosen = attempts_of(addresses, {"1.0.0": "a", "2.0.0": "a", "3.0.0": "b"})
    assert {slot: work.rank for slot, work in chosen.items()} == {"1.0.0": 0, "3.0.0": 1}
    assert len({work.gang.key for work in chosen.values()}) == 1
    assert list(attempts_of(addresses, dict.fromkeys(addresses, "a"))) == ["1.0.0", "2.0.0"]
    assert attempts_of({"1.0.0": held["1.0.0"].address}, {"1.0.0": "a"}) == {}
