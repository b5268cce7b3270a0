"""When tokens are asked for again; `tests/kerberos` has a secured HDFS."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from spark_jobs.session import delegation_tokens
from spark_jobs.session.delegation_tokens import DelegationTokens, KnownTokens


class Issuer(DelegationTokens):
    """Issues tokens of a day, without a JVM; not those of file systems that are down."""

    def __init__(self):
        self._users = SimpleNamespace(isSecurityEnabled=lambda: True)
        self.down = set()
        self.issued = 0

    def _login(self):
        return "user"

    def _issue(self, authority, user):
        if authority in self.down:
            raise ConnectionError("it does not answer")
        self.issued += 1
        return SimpleNamespace(encodeToUrlString=lambda: f"token of {authority}")

    def _end(self, token, user):
        return time.time() + 86_400


@pytest.fixture
def issuer():
    return Issuer()


def passed(monkeypatch, seconds):
    now = time.time() + seconds
    monkeypatch.setattr(delegation_tokens.time, "time", lambda: now)


def test_tokens_are_used_again_for_half_of_their_time(issuer, monkeypatch):
    known = KnownTokens()
    first = issuer.get(["one", "two"], known)
    passed(monkeypatch, 43_000)
    assert issuer.get(["one", "two"], known) == first
    assert issuer.issued == 2
    passed(monkeypatch, 44_000)
    issuer.get(["one", "two"], known)
    assert issuer.issued == 4


def test_a_token_that_could_not_be_got_is_asked_for_again_soon(issuer, monkeypatch, caplog):
    known = KnownTokens()
    issuer.down = {"two"}
    assert issuer.get(["one", "two"], known) == {"one": "token of one"}
    assert "no delegation token for hdfs://two" in caplog.text
    issuer.down = set()
    assert issuer.get(["one", "two"], known) == {"one": "token of one"}
    passed(monkeypatch, 301)
    assert set(issuer.get(["one", "two"], known)) == {"one", "two"}
