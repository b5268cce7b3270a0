from __future__ import annotations

import pytest

from spark_jobs.cluster.exposure import (
    exposure_of_connect,
    exposure_of_spark,
    protection_of_spark,
    start_of,
)

AUTHENTICATED = {"spark.authenticate": "true"}
SECRET = "spark.authenticate=true, spark.authenticate.secret=<a secret>"
ONE_HOST = ("local", "local[2]", "local[*]", "local[2,3]", "local-cluster[2,1,1024]")
SEVERAL = ("yarn", "spark://host:7077", "k8s://https://host:443")


def exposure(master, environment=(), **settings):
    return exposure_of_spark(
        master, lambda name: settings.get(name) == "true", start_of(dict.fromkeys(environment, ""))
    )


@pytest.mark.parametrize("master", [*ONE_HOST, *SEVERAL])
def test_without_authentication_a_search_can_be_taken_over(master):
    found = exposure(master)
    assert found.off[0] == "spark.authenticate"
    assert found.danger.endswith("can take over a search")
    assert str(found) == f"{found.danger}; {found.remedy}"


@pytest.mark.parametrize("master", SEVERAL)
def test_traffic_between_hosts_must_be_encrypted(master):
    found = exposure(master, **AUTHENTICATED)
    assert found.off == ("spark.network.crypto.enabled",)
    assert "intercepts" in found.danger
    assert "spark.authenticate.secret" not in found.remedy
    for other in (
        "spark.network.crypto.enabled",
        "spark.authenticate.enableSaslEncryption",
        "spark.ssl.rpc.enabled",
    ):
        assert exposure(master, **AUTHENTICATED, **{other: "true"}) is None
        assert exposure(master, **{other: "true"}).off == ("spark.authenticate",)


@pytest.mark.parametrize("master", ONE_HOST)
def test_on_one_host_authentication_is_enough(master):
    assert exposure(master, **AUTHENTICATED) is None


@pytest.mark.parametrize(
    ("master", "remedy"),
    [
        ("local[2]", 'SparkSession.builder.config("spark.authenticate", "true")'),
        (
            "yarn",
            'SparkSession.builder.config("spark.authenticate", "true")'
            '.config("spark.network.crypto.enabled", "true")',
        ),
        ("local-cluster[2,1,1024]", f"spark-defaults.conf (mode 0600) of this session: {SECRET}"),
        (
            "spark://host:7077",
            "spark-defaults.conf (mode 0600) of master, workers and this session: "
            + SECRET.replace(", ", ", spark.network.crypto.enabled=true, "),
        ),
    ],
)
def test_the_remedy_has_what_to_paste(master, remedy):
    assert exposure(master).remedy.endswith(remedy)


@pytest.mark.parametrize("mark", ["PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"])
def test_the_remedy_for_a_command_has_its_arguments(mark):
    words = "--conf spark.authenticate=true"
    assert exposure("local[2]", [mark]).remedy.endswith(words)
    assert exposure("k8s://https://host:443", [mark]).remedy.endswith(
        f"{words} --conf spark.network.crypto.enabled=true"
    )


def test_a_client_of_spark_connect_shows_a_token():
    found = exposure_of_connect("15002", None, token=False, encrypted=True)
    assert found.off == ("SPARK_CONNECT_AUTHENTICATE_TOKEN",)
    assert "run Python" in found.danger
    assert found.remedy.endswith("connect to sc://localhost:15002")
    assert exposure_of_connect("15002", None, token=True, encrypted=True) is None


def test_the_risks_of_a_connect_server_and_its_spark_are_one_sentence():
    spark = exposure("local[2]", ["PYSPARK_GATEWAY_PORT"])
    found = exposure_of_connect("", spark, token=False, encrypted=False)
    assert found.off == ("SPARK_CONNECT_AUTHENTICATE_TOKEN", "use_ssl", "spark.authenticate")
    assert "run Python" in found.danger
    for word in ("SPARK_CONNECT_AUTHENTICATE_TOKEN", ";use_ssl=true", spark.remedy):
        assert word in found.remedy
    assert "localhost" not in found.remedy
    assert exposure_of_connect("", None, token=True, encrypted=False).danger.startswith("anyone")
    only_spark = exposure_of_connect("15002", spark, token=True, encrypted=True)
    assert (only_spark.danger, only_spark.remedy) == (spark.danger, spark.remedy)


@pytest.mark.parametrize(
    ("settings", "protection"),
    [
        ((), ""),
        (("spark.authenticate", "spark.network.crypto.enabled"), "spark.authenticate"),
        (("spark.ssl.rpc.enabled",), "spark.ssl.rpc.enabled"),
    ],
)
def test_the_first_setting_that_protects_is_named(settings, protection):
    assert protection_of_spark(lambda name: name in settings) == protection
