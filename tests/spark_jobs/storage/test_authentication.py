"""Authentication at an HDFS, and tokens that are never shown; `tests/kerberos/` has Kerberos."""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from search.errors import InvalidArgument
from spark_jobs.storage import authentication
from spark_jobs.storage.authentication import without_token
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.storage.webhdfs import WebHdfs

TOKEN = "HAAFYWxpY2UFYWxpY2UAigGaPw-secret_of_the_tests"
OTHER = "another_token_that_the_namenode_made"
FILE = Location.parse("hdfs://nn:8020/a")


class Server:
    """Records each requested address, and answers as `answer` says."""

    def __init__(self):
        self.asked = []
        self.answer = ANSWERS["not there"]
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append(self.path)
                status, headers, body = outer.answer(self.path)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server():
    with Server() as server:
        yield server


def settings(server, *, tokens=True, **more):
    values = {"fs.defaultFS": "hdfs://nn:8020", "dfs.namenode.http-address": server.address, **more}
    return HadoopSettings(values, "alice", {"nn:8020": TOKEN} if tokens else {})


def failure(server, **more):
    """Return the texts of a failing call: its message and the traceback that a user sees."""
    files = WebHdfs(FILE, settings(server, **more), patience=0.5)
    with pytest.raises(OSError) as caught:
        files.status(FILE)
    files.close()
    assert "\n" not in str(caught.value)
    return str(caught.value), "".join(traceback.format_exception(caught.value))


def remote(exception, message):
    answer = {"RemoteException": {"exception": exception, "message": message}}
    return json.dumps(answer).encode()


def query(path):
    return parse_qs(urlsplit(path).query)


def test_a_token_is_sent_instead_of_a_name(server):
    failure(server)
    assert query(server.asked[0])["delegation"] == [TOKEN]
    assert "user.name" not in query(server.asked[0])


def test_without_security_a_name_is_enough(server):
    failure(server, tokens=False)
    assert query(server.asked[0])["user.name"] == ["alice"]


ANSWERS = {
    "not there": lambda path: (404, {}, remote("FileNotFoundException", f"at {path}")),
    "json with the address": lambda path: (500, {}, remote("IOException", f"failed: {path}")),
    "page with the address": lambda path: (500, {}, f"<p>failed: http://nn{path}</p>".encode()),
    "access denied": lambda path: (401, {}, f"<p>{path}</p>".encode()),
    "no permission": lambda path: (403, {}, remote("AccessControlException", f"at {path}")),
    "no longer valid": lambda path: (403, {}, remote("InvalidToken", f"at {path}")),
    "in trouble": lambda path: (403, {}, remote("SafeModeException", f"at {path}")),
    "gone": lambda path: (307, {"Location": f"http://127.0.0.1:1/x?delegation={OTHER}"}, b""),
    "no address": lambda path: (307, {"Location": f"http://[x?delegation={OTHER}"}, b""),
    "no host": lambda path: (307, {"Location": f"http://?delegation={OTHER}"}, b""),
    "no scheme that is known": lambda path: (307, {"Location": f"x:/?Delegation={OTHER}"}, b""),
    "in circles": lambda path: (307, {"Location": f"/x?delegation={OTHER}"}, b""),
    "no json": lambda path: (200, {}, path.encode()),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_no_failure_shows_a_token(server, kind, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    server.answer = ANSWERS[kind]
    output = capfd.readouterr()
    shown = [*failure(server), caplog.text, output.out, output.err]
    assert server.asked
    for text in shown:
        assert TOKEN not in text
        assert OTHER not in text


def test_a_name_node_that_is_gone_shows_no_token(server, caplog):
    caplog.set_level(logging.DEBUG)
    server.address = "127.0.0.1:1"
    assert TOKEN not in " ".join([*failure(server), caplog.text])


def test_requests_in_the_log_have_no_token(server, caplog):
    caplog.set_level(logging.DEBUG)
    failure(server)
    assert "delegation=..." in caplog.text
    assert TOKEN not in caplog.text


def test_only_the_token_is_left_out():
    shown = "GET /a?op=OPEN&delegation=...&offset=1"
    assert without_token(shown.replace("...", TOKEN)) == shown
    assert without_token("'delegation=abc' failed") == "'delegation=...' failed"
    assert without_token("delegation tokens") == "delegation tokens"


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        ("access denied", "this HDFS requires Kerberos; type kinit, and set HADOOP_CONF_DIR"),
        ("no longer valid", "the delegation token is not accepted, as user alice at http://"),
        ("no permission", "no permission, as user alice at http://"),
    ],
)
def test_denied_access_is_an_error_with_its_remedy(server, kind, remedy):
    server.answer = ANSWERS[kind]
    assert remedy in failure(server)[0]


def test_a_secured_cluster_needs_a_token_or_a_package(server, monkeypatch):
    monkeypatch.setitem(sys.modules, "gssapi", None)
    secured = settings(server, tokens=False, **{"hadoop.security.authentication": "kerberos"})
    with pytest.raises(InvalidArgument) as caught:
        WebHdfs(FILE, secured)
    message = str(caught.value)
    assert message.startswith("hdfs://nn:8020/a: expected a delegation token or the package gssapi")
    assert "without Spark type: pip install gssapi; kinit" in message
    assert "spark.kerberos.access.hadoopFileSystems" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("host", "ticket"), [("NN1.corp", "Negotiate bm4xLmNvcnA="), ("datanode", None)]
)
def test_a_ticket_is_sent_to_namenodes_alone_in_any_case(monkeypatch, host, ticket):
    monkeypatch.setitem(sys.modules, "gssapi", object())
    monkeypatch.setattr(authentication._Tickets, "_ticket", lambda self, name: name.encode())
    secured = HadoopSettings(
        {
            "fs.defaultFS": "hdfs://nn:8020",
            "dfs.namenode.http-address": "NN1.corp:9870",
            "hadoop.security.authentication": "kerberos",
        }
    )
    session = requests.Session()
    authentication.authenticate(session, FILE, secured)
    request = session.prepare_request(requests.Request("GET", f"http://{host}:9870/webhdfs/v1/"))
    assert request.headers.get("Authorization") == ticket


def test_a_token_needs_no_package(server, monkeypatch):
    monkeypatch.setitem(sys.modules, "gssapi", None)
    failure(server, **{"hadoop.security.authentication": "kerberos"})
    assert query(server.asked[0])["delegation"] == [TOKEN]


def test_the_filter_is_there_once(server):
    for _ in range(3):
        failure(server)
    assert len(logging.getLogger("urllib3.connectionpool").filters) <= 1
    assert requests.Session().params == {}
