"""Hosts whose executors cannot start, by the JSON of a standalone cluster."""

from __future__ import annotations

import json

import pytest

from spark_jobs.cluster.standalone_pages import FailingHost, failing_hosts

_LOG = "http://a:1/logPage/?appId=app&executorId=0&logType=stdout"


def worker(*ended, application="app"):
    executors = [{"id": number, "appid": application, "memory": 512} for number in ended]
    return {"masterwebuiurl": "http://m:8081", "executors": [], "finishedexecutors": executors}


def cluster(**workers):
    """Return the pages of a master and of workers, each on a host and alive."""
    hosts = [
        {"host": host, "webuiaddress": f"http://{host}:1", "state": "ALIVE", "cores": 4}
        for host in workers
    ]
    pages = {f"http://{host}:1/json/": told for host, told in workers.items()}
    return pages | {"http://m:8081/json/": {"workers": hosts, "status": "ALIVE"}}


def failing(pages, logs=(_LOG,), master="http://m:8080", serving=("a",)):
    asked = []

    def page(url):
        asked.append(url)
        if url not in pages:
            raise OSError("nobody there")
        told = pages[url]
        return told if isinstance(told, bytes) else json.dumps(told).encode()

    return list(failing_hosts("app", logs, master, serving, page)), asked


def test_a_host_where_executors_end_is_told_with_the_log_of_the_last_one():
    found, _ = failing(cluster(a=worker(), b=worker(1, 3, 2), c=worker()))
    log = "http://b:1/logPage/?appId=app&executorId=3&logType=stderr"
    assert found == [FailingHost("b", 3, log)]


@pytest.mark.parametrize(
    "told",
    [
        worker(7),  # one may be lost
        worker(1, 2, 3, application="another"),
        {"finishedexecutors": "no"},
        b"<html>",
        b"\xff",
    ],
)
def test_other_hosts_are_not_told(told):
    assert failing(cluster(a=worker(), b=told))[0] == []


def test_a_host_that_serves_the_application_is_not_asked():
    found, asked = failing(cluster(a=worker(1, 2), b=worker(1, 2)), serving=("a", "b"))
    assert found == []
    assert asked == ["http://a:1/json/", "http://m:8081/json/"]


def test_without_an_executor_the_master_is_looked_for_where_it_should_be():
    pages = cluster(a=worker(1, 2), b=worker())
    pages["http://m:8080/json/"] = pages.pop("http://m:8081/json/")
    found, asked = failing(pages, logs=(), serving=())
    assert [host.host for host in found] == ["a"]
    assert asked[0] == "http://m:8080/json/"


def test_workers_that_are_gone_are_not_asked():
    pages = cluster(a=worker(), b=worker(1, 2))
    pages["http://m:8081/json/"]["workers"][1]["state"] = "DEAD"
    assert failing(pages)[0] == []


def test_where_nothing_answers_nothing_is_told():
    assert failing({})[0] == []
    assert failing({}, logs=("http://a:1/somewhere",))[1] == ["http://m:8080/json/"]
