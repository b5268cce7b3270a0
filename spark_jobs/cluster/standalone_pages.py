"""What the pages of a standalone cluster tell of executors that cannot start.

As long as one executor of an application runs, Spark's master starts each that ended again, without
limit, and the driver is not told. Only the workers know how many have ended: in the JSON that each
serves beside its pages.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import msgspec

T = TypeVar("T")

_FEW = 2  # executors that have ended on a host which cannot start any; one may have been lost
_SECONDS = 5.0
_LARGEST = 64 << 20  # bytes; a worker keeps 1,000 ended executors, of some kilobytes each
_HOW_LARGE = 1 << 16


@dataclass(frozen=True, slots=True)
class FailingHost:
    """A host on which executors of an application end before they have served it.

    Attributes:
        host: Its name, as Spark calls it.
        ended: How many have ended there; a worker forgets those before the last 1,000.
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
    """Return what is served at an address.

    Raises:
        OSError: Nothing, something else than a page, or too much.
    """
    import requests  # a fifth of the import of `experiment`, which every zygote pays

    with requests.Session() as session:
        session.trust_env = False  # no proxy stands between the driver and its cluster
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
    logs: Iterable[str],
    master: str,
    serving: Collection[str],
    page: Callable[[str], bytes] = page_of,
) -> Iterator[FailingHost]:
    """Yield the hosts on which executors of an application cannot start, as far as pages tell.

    Args:
        application: Spark's name of it.
        logs: Addresses of logs of executors that serve it: the pages of their workers lead to the
            master's.
        master: Where the master's page should be, if no worker tells.
        serving: Hosts of executors that serve the application.
        page: Returns what is served at an address, or raises an OSError.
    """
    workers = {url.partition("/logPage/")[0]: None for url in logs if "/logPage/" in url}
    told = (worker.masterwebuiurl for worker in map(_reader(_Worker, page), workers) if worker)
    places = dict.fromkeys(itertools.chain(itertools.islice(told, 1), [master]))
    found = next(filter(None, map(_reader(_Master, page), places)), None)
    for known in found.workers if found else ():
        if known.state != "ALIVE" or known.host in serving:
            continue
        worker = _reader(_Worker, page)(known.webuiaddress)
        ended = [e.id for e in worker.finishedexecutors if e.appid == application] if worker else []
        if len(ended) >= _FEW:
            words = f"appId={application}&executorId={max(ended)}&logType=stderr"
            yield FailingHost(known.host, len(ended), f"{known.webuiaddress}/logPage/?{words}")


def _reader(kind: type[T], page: Callable[[str], bytes]) -> Callable[[str], T | None]:
    """Return what reads the JSON beside a page; None of it where there is none."""

    def read(url: str) -> T | None:
        try:
            return msgspec.json.decode(page(f"{url.rstrip('/')}/json/"), type=kind)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    return read
