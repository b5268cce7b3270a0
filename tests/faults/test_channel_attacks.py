"""Input of strangers and broken clients on the channel, none of which harms an honest slot."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import json
import logging
import socket
import ssl
import subprocess
import sys
from types import SimpleNamespace

import grpc
import psutil
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from experiment.driver.jobs import slot_jobs
from search.trial import Outcome
from spark_jobs import time_limits
from spark_jobs.channel import grpc_channel
from spark_jobs.channel.credentials import new_key
from spark_jobs.channel.grpc_channel import ChannelClient, ChannelServer
from spark_jobs.messages import LARGEST_MESSAGE, Heard, Hello, Report, encode
from tests.experiment.driver.searches import Search, points
from tests.experiment.waiting import wait_until
from tests.whole_searches.executors.steady_search import search as submit
from tests.whole_searches.executors.steady_search import wait_for_steps

pytestmark = pytest.mark.slow

LOOPBACK = "127.0.0.1"
HONEST = "1.77.0"
MEMORY = 64 << 20  # bytes by which the driver may grow, for any input


class Honest:
    """A slot that reports and finishes one trial per call, on a real connection."""

    def __init__(self, address):
        self.slot = ChannelClient(address, HONEST)
        self.slot.hello(Hello(slot=HONEST, host="host"))
        self.attempt = self.slot.next()
        self.done = []

    def turn(self):
        trial = self.attempt.trial
        assert self.slot.report(self.attempt, (Report(1, {"metric": 0.5}),)) == Heard()
        value = float(trial.id)
        outcome = Outcome(trial.id, "finished", value, "metric", {"metric": value})
        self.done.append(trial.id)
        self.attempt = self.slot.next(self.attempt.number, outcome)


@pytest.fixture
def served(tmp_path, capfd, caplog):
    """A driver and an honest slot; at the end no trial is lost and no error was logged."""
    search = Search(tmp_path / "run", points(100_000))
    with ChannelServer(LOOPBACK, search.coordinator) as server:
        honest = Honest(server.address)
        with honest.slot:
            honest.turn()
            yield server, honest
            honest.turn()
        assert server.error is None
    values = {result.id: result.value for result in search.coordinator.trials.results}
    assert [values[trial] for trial in honest.done] == honest.done
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert "Traceback" not in capfd.readouterr().err


def memory():
    gc.collect()
    return psutil.Process().memory_info().rss


@pytest.mark.fault(36)
def test_ten_thousand_idle_connections_harm_no_trial_and_block_no_slot(
    spark, logdir, tmp_path, monkeypatch
):
    servers = []

    class Known(ChannelServer):
        def __enter__(self):
            servers.append(self)
            return super().__enter__()

    monkeypatch.setattr(slot_jobs, "ChannelServer", Known)
    handle = submit(spark, logdir, tmp_path)
    wait_for_steps(tmp_path)
    (server,) = servers
    port = int(server.address.target.rpartition(":")[2])
    before = memory()
    flood = subprocess.Popen(
        [sys.executable, "-m", "tests.flood", str(port), "10000"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        made = int(flood.stdout.readline())
        assert (
            made >= 10_000 or made >= psutil.Process(flood.pid).rlimit(psutil.RLIMIT_NOFILE)[0] / 2
        )
        assert connections_to(port) <= 2 * 2 + 64
        heard = [out.last.step for out in handle._control.status().running]
        wait_for_steps(tmp_path, more=100)
        wait_until(
            lambda: all(
                out.last.step >= step + 100
                for out, step in zip(handle._control.status().running, heard, strict=True)
            )
        )
        assert memory() - before < MEMORY
    finally:
        flood.communicate("")
    with ChannelClient(server.address, "1.7.0") as late:
        greeting = encode(Hello(slot="1.7.0", host="host"))
        late._methods["Hello"](greeting, timeout=120, metadata=late._metadata, wait_for_ready=True)
    (tmp_path / "enough").touch()
    result = handle.result(120)
    assert [trial.status for trial in result.trials] == ["finished"] * 2


def connections_to(port):
    """Return the number of connections that this process has accepted on a port."""
    return sum(
        connection.laddr.port == port and connection.status == psutil.CONN_ESTABLISHED
        for connection in psutil.Process().net_connections("tcp")
        if connection.raddr and connection.raddr.port != port
    )


names = st.sampled_from(
    [*("1.1.0", "1.1.1", "1.2.0", "1.3.0", "2.3.0", "999999999.0.0", HONEST), "1.1.9999999999", "x"]
)
counts = st.integers(0, 9) | st.integers()
floats = st.floats(-1e3, 1e3) | st.integers() | st.sampled_from(["nan", "inf", "x", "1_0", None])
metrics = st.dictionaries(st.sampled_from(["metric", "loss", "", "ü\0"]), floats, max_size=3)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
outcomes = st.fixed_dictionaries(
    {
        "trial": counts,
        "status": st.sampled_from(["finished", "failed", "stopped", "cancelled", "lost"]),
        "value": st.none() | floats,
        "objective": st.sampled_from([None, "metric", "loss"]),
        "metrics": metrics,
        "error": st.none()
        | st.fixed_dictionaries(
            {
                "kind": st.sampled_from(["user error", "machine", "other"]),
                "message": texts,
                "traceback": texts,
            }
        ),
        "seconds": floats,
    },
    optional={"reason": texts, "step": counts, "more": texts},
)
messages = st.one_of(
    st.tuples(
        st.just("Hello"),
        st.fixed_dictionaries(
            {"slot": names, "host": texts},
            optional={
                "free_gpus": counts,
                "gpus": st.lists(texts, max_size=3),
                "set_aside": st.dictionaries(texts, texts, max_size=3),
            },
        ),
    ),
    st.tuples(
        st.just("Next"),
        st.fixed_dictionaries(
            {"slot": names}, optional={"attempt": counts, "outcome": st.none() | outcomes}
        ),
    ),
    st.tuples(
        st.just("Report"),
        st.fixed_dictionaries(
            {
                "slot": names,
                "trial": counts,
                "attempt": counts,
                "reports": st.lists(
                    st.fixed_dictionaries({"step": counts, "metrics": metrics}), max_size=3
                ),
            },
            optional={"output": texts},
        ),
    ),
)
NASTY = [
    b"[" * 2_000,
    b'{"a":' * 2_000,
    b"1" * 5_000,
    b"1e999",
    b"-1",
    b"NaN",
    b"null",
    b'"\\ud800"',
    b"\xff\xfe",
    b"\0",
    b'"slot":"1.1.0",',
]
# Damage of a message: its position, as a share of the length; the bytes lost; those added.
spoilings = st.tuples(
    st.floats(0, 1), st.integers(0, 5), st.binary(max_size=3) | st.sampled_from(NASTY)
)


def spoilt(data, where, lost, put):
    at = int(where * len(data))
    return data[:at] + put + data[at + lost :]


def spoil_all(said, how):
    """Return messages with the names of their calls: each one whole, and with each damage."""
    for call, message in said:
        data = json.dumps(message).encode()
        yield call, data
        for way in how:
            yield call, spoilt(data, *way)


class Refused(Exception):
    """The error that `abort` raises."""


class Spoken:
    """A call as the server's methods see it."""

    def __init__(self, key):
        self.key, self.given = key, None

    def invocation_metadata(self):
        return (("attempt-key", self.key),)

    def set_trailing_metadata(self, metadata):
        self.given = dict(metadata)["attempt-key"]

    async def abort(self, code, details):
        raise Refused(code.name)


quick = settings(
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.thorough
@pytest.mark.fault(35)
@pytest.mark.timeout(900)
def test_twenty_thousand_damaged_messages_with_the_token(served, monkeypatch):
    server, honest = served
    monkeypatch.setattr(time_limits, "WAIT", 0.0)
    keys, answers, refusals, grown = {}, 0, {}, []

    async def speak(call, data, key):
        spoken = Spoken(key)
        await server._answer(call, data, spoken)
        return spoken.given

    def say(call, data):
        nonlocal answers
        slot = data.partition(b'"slot": "')[2].partition(b'"')[0]
        key = keys.setdefault(slot, new_key())  # its own, so that the driver accepts it
        run = asyncio.run_coroutine_threadsafe(speak(call, data, key), server._loop)
        try:
            keys[slot] = run.result() or key
            answers += 1
        except Refused as refused:
            refusals[str(refused)] = refusals.get(str(refused), 0) + 1

    @settings(quick, max_examples=20)  # hypothesis keeps examples in memory
    @given(
        st.lists(messages, min_size=20, max_size=20), st.lists(spoilings, min_size=50, max_size=50)
    )
    def fuzz(said, how):
        for call, data in spoil_all(said, how):
            say(call, data)
        honest.turn()
        assert server.error is None
        grown.append(memory())

    fuzz()
    assert answers + sum(refusals.values()) >= 20_000
    assert answers > 200
    assert set(refusals) == {"INVALID_ARGUMENT", "PERMISSION_DENIED"}
    assert grown[-1] - grown[0] < MEMORY


@pytest.mark.fault(35)
def test_thousands_of_damaged_messages_over_a_connection(served):
    server, honest = served
    before, codes, said_in_all = memory(), {}, itertools.count()
    with ChannelClient(server.address, "1.1.0") as other:
        calls = {
            name: other._channel.unary_unary(f"/experiment.Channel/{name}")
            for name in ("Hello", "Next", "Report", "", "Nothing", "ü/../Next")
        }
        token = ("authorization", f"Bearer {server.address.token}")
        metadata = [[], [token], [token, ("attempt-key", new_key())], [("attempt-key", "x")]]

        @settings(quick, max_examples=100)
        @given(
            st.lists(messages, min_size=5, max_size=5),
            st.lists(spoilings, min_size=5, max_size=5),
            st.sampled_from([*metadata[1:3] * 3, *metadata]),
            st.sampled_from([*calls]),
        )
        def fuzz(said, how, metadata, odd):
            sent = [*spoil_all(said, how), (odd, b"{}")]
            futures = [
                calls[call].future(data, timeout=1, metadata=metadata) for call, data in sent[::10]
            ]
            for call, data in sent:
                next(said_in_all)
                try:
                    calls[call](data, timeout=0.05, metadata=metadata)
                except grpc.RpcError as error:
                    codes[error.code().name] = codes.get(error.code().name, 0) + 1
            for future in futures:
                future.cancel()
            honest.turn()

        fuzz()
        for size in (LARGEST_MESSAGE, LARGEST_MESSAGE + 1, 4 * LARGEST_MESSAGE):
            with pytest.raises(grpc.RpcError) as caught:
                calls["Next"](b'{"slot":"' + b"1" * size, timeout=30, metadata=metadata[2])
            codes[caught.value.code().name] = 1
    assert next(said_in_all) >= 3_000
    assert {"UNAUTHENTICATED", "PERMISSION_DENIED", "INVALID_ARGUMENT"} <= set(codes)
    assert {"UNIMPLEMENTED", "RESOURCE_EXHAUSTED"} <= set(codes)
    assert not {"UNKNOWN", "INTERNAL", "ABORTED"} & set(codes)
    assert memory() - before < MEMORY


@pytest.mark.fault(35)
def test_a_thousand_connections_of_random_bytes(served):
    server, honest = served
    host, _, port = server.address.target.rpartition(":")
    greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
    frames = st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(0, 255)).flatmap(
        lambda frame: st.binary(min_size=4, max_size=4 + frame[0]).map(
            lambda data: bytes((0, 0, frame[0], frame[1], frame[2])) + data
        )
    )
    plain = st.binary(min_size=1, max_size=600)
    hello = st.builds(spoilt, st.just(client_hello()), st.floats(0, 1), st.integers(0, 200), plain)
    inside = st.builds(
        lambda first, rest: first + b"".join(rest),
        st.sampled_from([b"", greeting, greeting[:-4], b"GET / HTTP/1.1\r\n\r\n"]),
        st.lists(frames, max_size=5) | st.lists(plain, max_size=2),
    )
    before, made = memory(), itertools.count()

    @settings(quick, max_examples=100)
    @given(
        st.lists(st.booleans(), min_size=10, max_size=10),
        st.lists(plain | hello, min_size=6, max_size=6),
        st.lists(inside, min_size=4, max_size=4),
    )
    def attack(waits, outside, inside):
        with contextlib.ExitStack() as open_for_now:
            for wait, (encrypted, data) in zip(
                waits,
                [*((False, data) for data in outside), *((True, data) for data in inside)],
                strict=True,
            ):
                with contextlib.suppress(ConnectionError, ssl.SSLError):
                    next(made)
                    raw = socket.create_connection((host, int(port)), timeout=30)
                    open_for_now.callback(raw.close)
                    if encrypted:
                        raw = trusting().wrap_socket(raw, server_hostname="experiment-run")
                        open_for_now.callback(raw.close)
                    raw.sendall(data)
                    if not wait:
                        raw.close()
            honest.turn()

    attack()
    assert next(made) >= 1_000
    assert memory() - before < MEMORY
    wait_until(lambda: connections_to(int(port)) == 1)


def trusting():
    """Return a TLS context without verification."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


def client_hello():
    """Return the first bytes of a TLS client."""
    outgoing = ssl.MemoryBIO()
    session = trusting().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="experiment-run")
    with contextlib.suppress(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()


@pytest.mark.fault(36)
@pytest.mark.parametrize("greeted", [False, True], ids=["in the handshake", "after it"])
def test_a_silent_connection_is_closed(served, greeted, monkeypatch):
    handshake, idle = (60_000, 1_000) if greeted else (1_000, 60_000)
    limits = [
        ("grpc.server_handshake_timeout_ms", handshake),
        ("grpc.max_connection_idle_ms", idle),
    ]
    monkeypatch.setattr(grpc_channel, "_LIMITS", limits)
    with ChannelServer(LOOPBACK, SimpleNamespace(alike=None, alike_now=None)) as server:
        host, _, port = server.address.target.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as raw:
            with trusting().wrap_socket(raw) if greeted else raw as connection:
                if greeted:
                    connection.sendall(
                        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5)
                    )
                with contextlib.suppress(ConnectionError):
                    while connection.recv(1 << 16):
                        pass
