import socket

import pytest

from spark_jobs.addresses import OwnAddress, is_loopback, own_address, split_address

LOCAL = OwnAddress(socket.AF_INET, "127.0.0.1")


@pytest.fixture
def network():
    """This host's address in a network; skipped where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this host has no network")
        return OwnAddress(socket.AF_INET, probe.getsockname()[0])


def test_addresses_have_brackets_around_those_of_ipv6():
    assert split_address("10.0.0.5:23456") == ("10.0.0.5", 23456)
    assert split_address("[fe80::1]:80") == ("fe80::1", 80)


def test_loopback_addresses_are_known():
    assert [is_loopback(host) for host in ("127.0.0.1", "127.0.1.1", "::1")] == [True] * 3
    assert [is_loopback(host) for host in ("10.0.0.5", "fe80::1", "host")] == [False] * 3


def test_on_one_host_the_address_is_that_of_the_route():
    assert own_address("127.0.0.1:9", "nowhere.invalid", one_host=True) == LOCAL


@pytest.mark.parametrize("there", ["127.0.0.1:9", "localhost:9"])
def test_other_hosts_get_no_loopback_address(network, there):
    """As where the driver is a client of Spark Connect, or its name leads to loopback."""
    for name in (network.host, "localhost", "nowhere.invalid"):
        assert own_address(there, name, one_host=False) == network


def test_an_address_of_another_host_is_not_taken_for_the_own(network):
    assert own_address("127.0.0.1:9", "192.0.2.99", one_host=False) == network


def test_the_route_to_a_driver_elsewhere_has_the_address(network):
    assert own_address(f"{network.host}:9", "localhost", one_host=False) == network


def test_a_driver_whose_name_is_unknown_here_is_no_obstacle(network):
    """As where slots and driver exchange messages through the mailbox."""
    assert own_address("nowhere.invalid:9", "localhost", one_host=False) == network
    assert own_address("nowhere.invalid:9", network.host, one_host=True) == network
