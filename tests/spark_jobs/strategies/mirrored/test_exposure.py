import pytest

from search.errors import InvalidArgument
from spark_jobs.strategies.mirrored.exposure import check_port, risk_of_port
from spark_jobs.strategies.settings import Downpour, Mirrored


def test_an_open_port_is_refused_on_a_protected_cluster():
    with pytest.raises(InvalidArgument) as raised:
        check_port("strategy", Mirrored(), "spark.authenticate")
    assert "strategy: expected one without an open port, since spark.authenticate is on" in str(
        raised.value
    )
    assert "experiment.Mirrored(unprotected=True)" in str(raised.value)


@pytest.mark.parametrize(
    ("strategy", "protected_by"),
    [
        (Mirrored(unprotected=True), "spark.authenticate"),
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
