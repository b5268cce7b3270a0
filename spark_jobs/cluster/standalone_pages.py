"""Executors that cannot start, from the pages of a standalone cluster.

While one executor of an application runs, Spark's master restarts each ended one without limit, and
the driver does not learn of it. Only the workers know how many have ended: in the JSON that each
serves beside its pages.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import msgspec

T = TypeVar("T")

_FEW = 2  # ended executors from which a host counts as failing; one may have been lost
_SECONDS = 5.0
_LARGEST = 64 << 20  # bytes; a worker keeps 1,000 ended executors, of some kilobytes each
_HOW_LARGE = 1 << 16


@dataclass(frozen=True, slots=True)
class FailingHost:
    """A host on which executors of an application end before they have served it.

    Attributes:
        host: Spark's name for the host.
        ended: The number of ended executors there; a worker keeps the last 1,000.
        log: The address of the last one's log.
    """

    host: str
    ended: int
    log: str


class _Executor(msgspec.Struct):
    id: int
    appid: str


class _Worker(msgspec.Struct):
    masterwebuiurl: str
    finishedexecutors: list[_Executor]


class _WorkerOfMaster(msgspec.Struct):
    host: str
    webuiaddress: str
    state: str


class _Master(msgspec.Struct):
    workers: list[_WorkerOfMaster]


def page_of(url: str) -> bytes:
    """Return the page at an address.

    Raises:
        OSError: No answer, an error status, or too large a page.
    """
    import requests  # a fifth of the import of `experiment`, which every zygote pays

    with requests.Session() as session:
        session.trust_env = False  # no proxy between the driver and its cluster
        with session.get(url, timeout=_SECONDS, allow_redirects=False, stream=True) as answer:
            if answer.status_code != requests.codes.ok:
                raise OSError(f"{url}: status {answer.status_code}")
            page = bytearray()
            for part in answer.iter_content(_HOW_LARGE):
                page += part
                if len(page) > _LARGEST:
                    raise OSError(f"{url}: more than {_LARGEST} bytes")
    return bytes(page)


def failing_hosts(
    application: str,
    *,
    logs: Iterable[str],
    master: str,
    serving: Collection[str],
    started: Collection[int],
    page: Callable[[str], bytes] = page_of,
) -> Iterator[FailingHost]:
    """Yield the hosts on which executors of an application cannot start, if pages show them.

    Args:
        application: The application's id.
        logs: Addresses of logs of executors that serve it: the pages of their workers lead to the
            master's.
        master: The expected address of the master's page, if no worker has it.
        serving: Hosts of executors that serve the application.
        started: Ids of the executors that have served it; their ends are not counted.
        page: Returns the page at an address, or raises an OSError.
    """
    workers = {url.partition("/logPage/")[0]: None for url in logs if "/logPage/" in url}
    masters = (worker.masterwebuiurl for worker in map(_reader(_Worker, page), workers) if worker)
    places = dict.fromkeys(itertools.chain(itertools.islice(masters, 1), [master]))
    found = next(filter(None, map(_reader(_Master, page), places)), None)
    for known in found.workers if found else ():
        if known.state != "ALIVE" or known.host in serving:
            continue
        worker = _reader(_Worker, page)(known.webuiaddress)
        ended = _ended_without(started, application, worker) if worker else []
        if len(ended) >= _FEW:
            words = f"appId={application}&executorId={max(ended)}&logType=stderr"
            yield FailingHost(known.host, len(ended), f"{known.webuiaddress}/logPage/?{words}")


def _ended_without(started: Collection[int], application: str, worker: _Worker) -> list[int]:
    """Return the ids of a worker's executors that have ended before they started."""
    ended = (e.id for e in worker.finishedexecutors if e.appid == application)
    return [executor for executor in ended if executor not in started]


def _reader(kind: type[T], page: Callable[[str], bytes]) -> Callable[[str], T | None]:
    """Return a function that reads the JSON beside a page; it returns None without any."""

    def read(url: str) -> T | None:
        try:
            return msgspec.json.decode(page(f"{url.rstrip('/')}/json/"), type=kind)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    return read
