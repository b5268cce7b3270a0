"""One run: `python -m tests.benchmarks.peers.program`, in the environment of a peer.

It reads a JSON object with the task's settings from standard input, and prints a JSON line with
what it measured; everything else that is printed goes to standard error.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.benchmarks.peers import trials
from tests.benchmarks.peers.measured import HUNG
from tests.benchmarks.peers.stopwatch import Stopwatch
from tests.benchmarks.peers.trials import Configuration, Train

Settings = dict[str, Any]
Measured = dict[str, Any]

_PROBE = 1.0  # seconds of a call from which the time of a trial is estimated
_FEWEST = 10
_BOUNDS = {"x": (0.0, 1.0), "y": (0.0, 1.0), "z": (0.0, 1.0)}


class Peer(Protocol):
    """A library with its session: processes, a cluster, a Spark session.

    The constructor opens the session. It takes `slots`, the number of trials at a time, `folder`
    for files, and options of the roster.
    """

    def search(
        self, train: Train, configurations: Sequence[Configuration], limit: float | None = None
    ) -> Sequence[object]:
        """Run a trial for each configuration; return the values of those that have one.

        Args:
            train: The train function.
            configurations: Its keyword arguments, for each trial.
            limit: Seconds that a trial may take; or a search, if the peer can only limit that.
        """
        ...

    def close(self) -> None:
        """Close the session."""
        ...


class EvolvingPeer(Peer, Protocol):
    """A peer with differential evolution."""

    def evolve(
        self,
        train: Train,
        bounds: dict[str, tuple[float, float]],
        popsize: int,
        generations: int,
    ) -> None:
        """Evaluate a first population and then as many again for each generation."""
        ...


def null(open_peer: Callable[[], Peer], settings: Settings) -> Measured:
    """Measure milliseconds per trial of nothing, in a warm session."""
    peer = open_peer()
    count = _trials_within(peer, settings["seconds"], settings["most"])
    with Stopwatch() as watch:
        count = len(_run_nulls(peer, count))  # some peers evaluate whole populations only
    return {
        "ms": 1000 * watch.seconds / count,
        "processor_ms": 1000 * watch.processor / count,
        "trials": count,
        **watch.costs(),
    }


def sleeps(open_peer: Callable[[], Peer], settings: Settings) -> Measured:
    """Measure the use of slots by sleeps, from the call to its return, in a warm session."""
    lengths = settings["lengths"]
    peer = open_peer()
    _run_nulls(peer, 2 * settings["slots"])
    with Stopwatch() as watch:
        values = peer.search(trials.sleep, [{"seconds": length} for length in lengths])
    assert len(values) == len(lengths), values
    return {"use": sum(lengths) / settings["slots"] / watch.seconds, **watch.costs()}


def evolution(open_peer: Callable[[], EvolvingPeer], settings: Settings) -> Measured:
    """Measure the use of slots by a differential evolution, from the call to its return."""
    lengths, turns = settings["lengths"], os.path.join(settings["folder"], "slept")
    popsize = settings["popsize"]
    peer = open_peer()
    _run_nulls(peer, 2 * settings["slots"])
    train = functools.partial(trials.sleep_next, turns, lengths)
    with Stopwatch() as watch:
        peer.evolve(train, _BOUNDS, popsize, len(lengths) // popsize - 1)
    count = trials.turns_taken(turns)
    slept = sum(lengths[turn % len(lengths)] for turn in range(count))
    return {
        "use": slept / settings["slots"] / watch.seconds,
        "trials": count,
        **watch.costs(),
    }


def keras(open_peer: Callable[[], Peer], settings: Settings) -> Measured:
    """Measure the seconds of Keras trials in the first and in the second call of a session."""
    points = [
        {"learning_rate": rate, "dropout": dropout, "epochs": settings["epochs"]}
        for rate in settings["learning_rates"]
        for dropout in settings["dropouts"]
    ]
    peer, watch, found = open_peer(), Stopwatch(), {}
    for name in ("cold", "warm"):
        began = watch.seconds
        with watch:
            values = peer.search(trials.digits, points)
        assert len(values) == len(points), values
        found[name] = watch.seconds - began
    return {**found, **watch.costs()}


def memory(open_peer: Callable[[], Peer], settings: Settings) -> Measured:
    """Measure by how much the driver's Python process grows at most, per trial of nothing."""
    peer = open_peer()
    count = _trials_within(peer, settings["seconds"], settings["most"])
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak
    before = _resident("VmRSS")
    with Stopwatch() as watch:
        values = _run_nulls(peer, count)
    grown = _resident("VmHWM") - before
    assert len(values) == count
    return {"kB": grown / count / 1000, "trials": count, **watch.costs()}


def start(open_peer: Callable[[], Peer], settings: Settings) -> Measured:
    """Measure the seconds of opening a session, its first and second call, and closing it."""
    watch, found = Stopwatch(), {}

    def timed(name: str, call: Callable[[], Any]) -> Any:
        began = watch.seconds
        with watch:
            value = call()
        found[name] = watch.seconds - began
        return value

    peer = timed("open", open_peer)
    timed("first", lambda: _run_nulls(peer, settings["trials"]))
    timed("second", lambda: _run_nulls(peer, settings["trials"]))
    timed("close", peer.close)
    peer.close = lambda: None
    return {**found, **watch.costs()}


def fault(open_peer: Callable[[], Peer], settings: Settings) -> Measured:
    """Find out what happens to a call if one of its trials goes wrong.

    This process ends as a hung one if the call and the session's end take too long.
    """
    peer = open_peer()
    _run_nulls(peer, settings["slots"])
    train = functools.partial(
        trials.faulty, bad=settings["bad"], fault=settings["fault"], done=settings["done"]
    )
    count = settings["trials"]
    patience = threading.Timer(settings["patience"], os._exit, [HUNG])
    patience.daemon = True
    patience.start()
    began = time.perf_counter()
    try:
        values = peer.search(train, [{"trial": trial} for trial in range(count)], settings["limit"])
        call = f"returned {len(values)} of {count}"
    except Exception as error:
        call = f"raised {type(error).__name__}"
    return {"call": call, "seconds": time.perf_counter() - began}


def _run_nulls(peer: Peer, count: int) -> Sequence[object]:
    return peer.search(trials.null, [{"trial": trial} for trial in range(count)])


def _trials_within(peer: Peer, seconds: float, most: int) -> int:
    """Return how many trials of nothing take some seconds, at most `most`; warms the session."""
    count, taken = 1, 0.0
    _run_nulls(peer, 2)
    while taken < _PROBE and count < most:
        count = min(most, _FEWEST * count)
        began = time.perf_counter()
        _run_nulls(peer, count)
        taken = time.perf_counter() - began
    return max(_FEWEST, min(most, int(seconds * count / taken)))


def _resident(name: str) -> int:
    """Return a value of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise LookupError(name)


def main() -> None:
    """Run the task of standard input."""
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print, too
    settings = json.load(sys.stdin)
    module = importlib.import_module(f"tests.benchmarks.peers.programs.{settings['program']}")
    opened: list[Peer] = []

    def open_peer() -> Peer:
        opened.append(
            module.Program(settings["slots"], Path(settings["folder"]), **settings["options"])
        )
        return opened[-1]

    measured = globals()[settings["kind"]](open_peer, settings)
    print(json.dumps(measured), file=results, flush=True)
    for peer in opened:
        peer.close()


if __name__ == "__main__":
    main()
