import pytest

from spark_jobs.strategies.one_address import addresses_of_host, is_loopback


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.0.3", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("10.0.0.5", False),
        ("fe80::1%eth0", False),
        ("node-7", False),
    ],
)
def test_a_loopback_address_is_known(host, loopback):
    assert is_loopback(host) == loopback


def test_a_host_has_a_loopback_address():
    assert any(map(is_loopback, addresses_of_host()))
