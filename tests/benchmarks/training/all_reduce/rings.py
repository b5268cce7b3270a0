"""All-reduces of several processes on this host: ours, those of libraries, TensorFlow's.

The candidates for the connections of a gang's members run the same ring, encrypted, and refuse a
stranger: TLS sockets, which were chosen, ZeroMQ with CURVE, and gRPC with mutual TLS. The processes
of all rings wait while one of them works, and take turns, so that a busy machine is as busy for
each.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import queue
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import numpy as np

from spark_jobs.channel.credentials import CERTIFICATE_NAME, make_certificate
from spark_jobs.communicator import connection, listener
from spark_jobs.communicator.communicator import connect
from spark_jobs.communicator.connection import Connection, connected, tls_contexts
from spark_jobs.communicator.in_step.ring import CHUNK, Ring, Sender
from spark_jobs.communicator.listener import Listener
from spark_jobs.communicator.membership import Membership, host_and_port

MEGABYTES = 250_000
"""Numbers of four bytes in a megabyte."""

_LIMIT = 60.0
_RETRY = 0.02
_SMALL = 50  # all-reduces of one number for one latency


class TlsLinks:
    """TLS sockets of Python's `ssl`: what `spark_jobs.communicator` uses."""

    def __init__(self, membership: Membership, secret: str, plain: socket.socket) -> None:
        connecting, accepting = tls_contexts(membership)
        arrived: queue.Queue[Any] = queue.Queue()
        self._listener = Listener(plain, accepting, arrived.put)
        self._listener.start()
        right = (membership.rank + 1) % membership.size
        tls = _until_it_works(
            lambda: connected(connecting, host_and_port(membership.members[right]), _LIMIT)
        )
        left = (membership.rank - 1) % membership.size
        self._right = Connection(tls, membership, right, _LIMIT)
        self._left = Connection(arrived.get(timeout=_LIMIT), membership, left, _LIMIT)
        self._sender = Sender(self._right, self._left.cut)
        self.send = self._sender.send
        self.flush = self._sender.flush
        self.receive_into = self._left.receive_into
        self.cut = self._left.cut

    def close(self) -> None:
        self._sender.close()
        self._right.close()
        self._left.close()
        self._listener.close()


class ZmqLinks:
    """ZeroMQ with CURVE: a message is a chunk, and libzmq's thread encrypts."""

    def __init__(self, membership: Membership, secret: str, plain: socket.socket) -> None:
        import zmq
        from zmq.auth.thread import ThreadAuthenticator

        public = zmq.curve_public(secret.encode())

        class Admitted:
            def callback(self, domain: str, key: bytes) -> bool:
                return key == public

        self._context = zmq.Context()
        self._guard = ThreadAuthenticator(self._context)
        self._guard.start()
        self._guard.configure_curve_callback("*", Admitted())
        self._left = self._context.socket(zmq.PULL)
        self._left.curve_server = True
        self._right = self._context.socket(zmq.PUSH)
        self._right.curve_serverkey = public
        for side in (self._left, self._right):
            side.curve_secretkey = secret.encode()
            side.curve_publickey = public
            side.rcvtimeo = side.sndtimeo = side.linger = round(1000 * _LIMIT)
            side.maxmsgsize = 2 * CHUNK
        plain.listen()
        self._left.use_fd = plain.detach()
        self._left.bind(f"tcp://{membership.members[membership.rank]}")
        right = membership.members[(membership.rank + 1) % membership.size]
        self._right.connect(f"tcp://{right}")
        self._last: Any = None

    def send(self, data: memoryview) -> None:
        whole = len(data) >= CHUNK
        self._last = self._right.send(data, copy=not whole, track=whole)

    def flush(self) -> None:
        if self._last is not None:
            self._last.wait(_LIMIT)

    def receive_into(self, data: memoryview) -> None:
        self._left.recv_into(data)

    def cut(self) -> None:
        self._left.close(0)

    def close(self) -> None:
        self._left.close()
        self._right.close()
        self._guard.stop()
        self._context.term()


class GrpcLinks:
    """gRPC with mutual TLS: one stream to the next rank, whose requests are the chunks."""

    def __init__(self, membership: Membership, secret: str, plain: socket.socket) -> None:
        import grpc

        key, certificate = membership.key.encode(), membership.certificate.encode()
        self._received: queue.Queue[bytes] = queue.Queue()
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

        def take(requests: Iterator[bytes], context: Any) -> bytes:
            for data in requests:
                self._received.put(data)
            self._received.put(b"")
            return b""

        handler = grpc.method_handlers_generic_handler(
            "Ring", {"Send": grpc.stream_unary_rpc_method_handler(take)}
        )
        options = [("grpc.max_receive_message_length", 2 * CHUNK)]
        self._server = grpc.server(ThreadPoolExecutor(2), (handler,), options=options)
        plain.close()  # gRPC takes no bound socket
        self._server.add_secure_port(
            membership.members[membership.rank],
            grpc.ssl_server_credentials([(key, certificate)], certificate, True),
        )
        self._server.start()
        self._channel = grpc.secure_channel(
            membership.members[(membership.rank + 1) % membership.size],
            grpc.ssl_channel_credentials(certificate, key, certificate),
            [("grpc.ssl_target_name_override", CERTIFICATE_NAME)],
        )
        grpc.channel_ready_future(self._channel).result(_LIMIT)
        self._call = self._channel.stream_unary("/Ring/Send").future(
            iter(self._waiting.get, None), wait_for_ready=True
        )

    def send(self, data: memoryview) -> None:
        self._waiting.put(bytes(data))

    def flush(self) -> None:
        pass

    def receive_into(self, data: memoryview) -> None:
        data[:] = self._received.get(timeout=_LIMIT)

    def cut(self) -> None:
        self._call.cancel()

    def close(self) -> None:
        self._waiting.put(None)
        assert self._received.get(timeout=_LIMIT) == b""
        self._call.result(_LIMIT)
        self._channel.close()
        self._server.stop(None).wait()


CANDIDATES: dict[str, Callable[..., Any]] = {
    "TLS sockets": TlsLinks,
    "ZeroMQ, CURVE": ZmqLinks,
    "gRPC, mutual TLS": GrpcLinks,
}

OURS = "our all_reduce"
"""`Communicator.all_reduce`, with all that it adds to the ring of the TLS sockets."""

TENSORFLOW = "TensorFlow's ring"
"""The collectives of `MultiWorkerMirroredStrategy` on processors: gRPC, not encrypted."""


@contextlib.contextmanager
def _candidate(make: Callable[..., Any], *given: Any) -> Iterator[Callable[[Any], Any]]:
    links, membership = make(*given), given[0]
    ring = Ring(membership.rank, membership.size, links, links)

    def reduce(vector: Any) -> Any:
        ring.all_reduce(vector, np.add, membership.size)
        links.flush()
        return vector

    yield reduce
    links.close()


@contextlib.contextmanager
def _ours(
    membership: Membership, secret: str, plain: socket.socket
) -> Iterator[Callable[[Any], Any]]:
    with connect(membership, plain, limit=60.0) as communicator:
        yield lambda vector: communicator.all_reduce([vector])[0]


@contextlib.contextmanager
def _tensorflow(
    membership: Membership, secret: str, plain: socket.socket
) -> Iterator[Callable[[Any], Any]]:
    plain.close()  # TensorFlow takes no bound socket
    task = {"type": "worker", "index": membership.rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": membership.members}, "task": task})
    import tensorflow as tf

    ring = tf.distribute.experimental.CommunicationImplementation.RING
    options = tf.distribute.experimental.CommunicationOptions(implementation=ring)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)

    def in_replica(tensor: Any) -> Any:
        context = tf.distribute.get_replica_context()
        placed = tf.identity(tensor)  # on the replica's device, as gradients are
        return context.all_reduce(tf.distribute.ReduceOp.MEAN, placed)

    run = tf.function(lambda tensor: strategy.run(in_replica, (tensor,)))
    tensors: dict[int, Any] = {}

    def reduce(vector: Any) -> Any:
        tensor = tensors.setdefault(len(vector), tf.constant(vector))
        return run(tensor).numpy()

    yield reduce


def member() -> None:
    """Be one process of a ring: reduce as often and as much as standard input says."""
    name, rank, members, key, certificate, secret, fd = json.loads(sys.stdin.readline())
    membership = Membership(rank=rank, members=tuple(members), key=key, certificate=certificate)
    given = membership, secret, socket.socket(fileno=fd)
    others = {OURS: _ours, TENSORFLOW: _tensorflow}
    entered = others[name](*given) if name in others else _candidate(CANDIDATES[name], *given)
    with entered as reduce:
        word = np.zeros(1, np.float32)
        for line in sys.stdin:
            vector = np.full(int(line), rank, np.float32)
            repeats = _SMALL if len(vector) == 1 else 1
            reduce(word)
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(repeats):
                found = reduce(vector)
            took = time.perf_counter() - wall, time.process_time() - cpu
            assert repeats > 1 or found[-1] == np.float32((membership.size - 1) / 2)
            print(json.dumps([1e3 * seconds / repeats for seconds in took]), flush=True)


class Processes:
    """The processes of a ring, each of which waits for its turn. A context manager.

    Args:
        name: A candidate, OURS or TENSORFLOW.
        size: The number of processes.
    """

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        ports = [socket.socket() for _ in range(size)]
        for port in ports:
            port.bind(("127.0.0.1", 0))
        members = [f"127.0.0.1:{port.getsockname()[1]}" for port in ports]
        key, certificate = (pem.decode() for pem in make_certificate())
        secret = _curve_secret()
        self._processes = []
        for rank, port in enumerate(ports):
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.benchmarks.training.all_reduce.rings"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
                text=True,
                pass_fds=[port.fileno()],
            )
            self._processes.append(process)
            given = [name, rank, members, key, certificate, secret, port.fileno()]
            self._write(process, json.dumps(given))
            port.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            if kind is not None or self._name == TENSORFLOW:  # its servers never end
                process.kill()
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            with process:
                process.wait()

    def reduce(self, numbers: int) -> tuple[float, float]:
        """Return wall and processor milliseconds of one all-reduce, the mean of the processes."""
        for process in self._processes:
            self._write(process, str(numbers))
        took = []
        for process in self._processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"{self._name}: a process ended with code {process.wait()}")
            took.append(json.loads(line))
        wall, cpu = (statistics.mean(column) for column in zip(*took, strict=True))
        return wall, cpu

    @staticmethod
    def _write(process: subprocess.Popen[str], line: str) -> None:
        assert process.stdin is not None
        process.stdin.write(f"{line}\n")
        process.stdin.flush()


def measure(
    names: Sequence[str], size: int, rounds: dict[int, int]
) -> dict[str, dict[int, list[tuple[float, float]]]]:
    """Return wall and processor milliseconds of each all-reduce, by name and numbers.

    Args:
        names: The rings, which take turns.
        size: The number of processes of each.
        rounds: The rounds by the length of the vector, in numbers of four bytes.
    """
    found: dict[str, dict[int, list[tuple[float, float]]]] = {name: {} for name in names}
    with contextlib.ExitStack() as running:
        rings = {name: running.enter_context(Processes(name, size)) for name in names}
        for numbers, count in rounds.items():
            for ring in rings.values():
                ring.reduce(numbers)
            for name in names:
                found[name][numbers] = []
            for _ in range(count):
                for name, ring in rings.items():
                    found[name][numbers].append(ring.reduce(numbers))
    return found


def lines() -> dict[str, int]:
    """Return the lines of each candidate; ours with the modules that a library would replace."""
    found = {name: len(inspect.getsource(made).splitlines()) for name, made in CANDIDATES.items()}
    for part in (connection, listener, Sender):
        found["TLS sockets"] += len(inspect.getsource(part).splitlines())
    return found


def candidates_table() -> list[str]:
    """Return the comparison of the candidates as a table in Markdown."""
    rows = [
        f"| | {' | '.join(CANDIDATES)} |",
        "| --- |" + " ---: |" * len(CANDIDATES),
        "| lines | " + " | ".join(str(count) for count in lines().values()) + " |",
    ]
    lengths = {1: 9, MEGABYTES: 15, 10 * MEGABYTES: 9, 67 * MEGABYTES: 3}
    for size in (2, 4):
        found = measure(list(CANDIDATES), size, lengths)
        for numbers in lengths:
            amount = "4 bytes" if numbers == 1 else f"{numbers // MEGABYTES} MB"
            for column, what in enumerate(("ms", "processor ms of a process")):
                cells = [
                    statistics.median(took[column] for took in found[name][numbers])
                    for name in CANDIDATES
                ]
                shown = " | ".join(f"{cell:.3g}" for cell in cells)
                rows.append(f"| {size} processes, {amount}: {what} | {shown} |")
    return rows


def _curve_secret() -> str:
    """Return a new secret of ZeroMQ; '' where it is not installed."""
    try:
        import zmq
    except ImportError:
        return ""
    return str(zmq.curve_keypair()[1].decode())


def _until_it_works(call: Callable[[], Any]) -> Any:
    end = time.monotonic() + _LIMIT
    while True:
        try:
            return call()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(_RETRY)


if __name__ == "__main__":
    member()
