import pytest

from search.errors import InvalidArgument
from spark_jobs.strategies.in_step.exposure import check_port, risk_of_port
from spark_jobs.strategies.settings import Downpour, Jax, Mirrored


@pytest.mark.parametrize(
    ("strategy", "shown"),
    [
        (Mirrored(), "'mirrored', whose TensorFlow listens without a password"),
        (Jax(), "'jax', whose JAX listens without a password"),
    ],
    ids=["mirrored", "jax"],
)
def test_an_open_port_is_refused_on_a_protected_cluster(strategy, shown):
    with pytest.raises(InvalidArgument) as raised:
        check_port("strategy", strategy, "spark.authenticate")
    message = str(raised.value)
    assert f"expected one without an open port, since spark.authenticate is on, got {shown}" in (
        message
    )
    assert f"experiment.{type(strategy).__name__}(unprotected=True)" in message


@pytest.mark.parametrize(
    ("strategy", "protected_by"),
    [
        (Mirrored(unprotected=True), "spark.authenticate"),
        (Jax(unprotected=True), "spark.authenticate"),
        (Mirrored(), ""),
        (Downpour(), "spark.authenticate"),
        (None, "spark.authenticate"),
    ],
)
def test_an_open_port_is_allowed(strategy, protected_by):
    check_port("strategy", strategy, protected_by)


def test_the_risk_names_who_reaches_the_port():
    assert risk_of_port(None, loopback=False) == ""
    assert risk_of_port(Mirrored(unprotected=True), loopback=False) == ""
    assert risk_of_port(Downpour(), loopback=False) == ""
    assert "any user of this host can run" in risk_of_port(Mirrored(), loopback=True)
    elsewhere = risk_of_port(Mirrored(), loopback=False)
    assert "anyone who reaches a worker's port can run" in elsewhere
    assert elsewhere.endswith(
        "shut the workers' ports to all other hosts, and accept this with "
        "strategy=experiment.Mirrored(unprotected=True)"
    )


def test_the_risk_of_jax_is_that_of_its_data():
    assert risk_of_port(Jax(unprotected=True), loopback=False) == ""
    assert "any user of this host can read and change what its workers exchange" in risk_of_port(
        Jax(), loopback=True
    )
    assert risk_of_port(Jax(), loopback=False).endswith(
        "accept this with strategy=experiment.Jax(unprotected=True)"
    )
