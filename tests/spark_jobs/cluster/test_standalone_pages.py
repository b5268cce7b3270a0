"""Hosts whose executors cannot start, from the JSON of a standalone cluster."""

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
    pages = {f"http://{host}:1/json/": page for host, page in workers.items()}
    return pages | {"http://m:8081/json/": {"workers": hosts, "status": "ALIVE"}}


def failing(pages, logs=(_LOG,), master="http://m:8080", serving=("a",), started=()):
    asked = []

    def page(url):
        asked.append(url)
        if url not in pages:
            raise OSError("nobody there")
        content = pages[url]
        return content if isinstance(content, bytes) else json.dumps(content).encode()

    found = failing_hosts(
        "app", logs=logs, master=master, serving=serving, started=started, page=page
    )
    return list(found), asked


def test_a_host_where_executors_end_is_reported_with_the_last_log():
    found, _ = failing(cluster(a=worker(), b=worker(1, 3, 2), c=worker()))
    log = "http://b:1/logPage/?appId=app&executorId=3&logType=stderr"
    assert found == [FailingHost("b", 3, log)]


def test_executors_that_started_and_ended_idle_are_not_counted():
    pages = cluster(a=worker(), b=worker(1, 2, 3), c=worker(4, 5, 6, 7))
    found, _ = failing(pages, started={1, 2, 3, 5, 7})
    log = "http://c:1/logPage/?appId=app&executorId=6&logType=stderr"
    assert found == [FailingHost("c", 2, log)]


@pytest.mark.parametrize(
    "page",
    [
        worker(7),  # one may be lost
        worker(1, 2, 3, application="another"),
        {"finishedexecutors": "no"},
        b"<html>",
        b"\xff",
    ],
)
def test_other_hosts_are_not_reported(page):
    assert failing(cluster(a=worker(), b=page))[0] == []


def test_a_host_that_serves_the_application_is_not_asked():
    found, asked = failing(cluster(a=worker(1, 2), b=worker(1, 2)), serving=("a", "b"))
    assert found == []
    assert asked == ["http://a:1/json/", "http://m:8081/json/"]


def test_without_an_executor_the_masters_default_address_is_used():
    pages = cluster(a=worker(1, 2), b=worker())
    pages["http://m:8080/json/"] = pages.pop("http://m:8081/json/")
    found, asked = failing(pages, logs=(), serving=())
    assert [host.host for host in found] == ["a"]
    assert asked[0] == "http://m:8080/json/"


def test_dead_workers_are_not_asked():
    pages = cluster(a=worker(), b=worker(1, 2))
    pages["http://m:8081/json/"]["workers"][1]["state"] = "DEAD"
    assert failing(pages)[0] == []


def test_without_an_answer_nothing_is_reported():
    assert failing({})[0] == []
    assert failing({}, logs=("http://a:1/somewhere",))[1] == ["http://m:8080/json/"]
