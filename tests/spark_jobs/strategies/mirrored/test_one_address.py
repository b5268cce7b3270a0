import re
import socket

import pytest

from spark_jobs.strategies.in_step.ports import PortTaken
from spark_jobs.strategies.mirrored.one_address import addresses_of_host, answer_only_at


def test_a_host_has_a_loopback_address():
    assert "127.0.0.1" in addresses_of_host()


def test_a_port_that_the_slot_holds_is_free():
    """At an address that no interface lists, as this process would listen at the others."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
        held.bind(("127.0.0.2", 0))
        answer_only_at(f"127.0.0.2:{held.getsockname()[1]}")


def test_a_port_that_another_program_has_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(PortTaken) as raised:
            answer_only_at(address)
    assert re.fullmatch(
        rf"TensorFlow cannot listen at {address} \(Address already in use\); another program may "
        "have taken the port: set spark.experiment.workerPorts to ports that no other program uses",
        str(raised.value),
    )
