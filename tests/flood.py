"""Connects to a port many times and waits: `python -m tests.flood <port> <connections>`.

Prints how many connections were made; ends with its standard input.
"""

from __future__ import annotations

import asyncio
import resource
import sys

_AT_ONCE = 500


async def _main(port: int, wanted: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard - 100)
    made = []
    for first in range(0, count, _AT_ONCE):
        calls = [asyncio.open_connection("127.0.0.1", port) for _ in range(first, count)[:_AT_ONCE]]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        made += [answer for answer in answers if not isinstance(answer, BaseException)]
    print(len(made), flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), int(sys.argv[2])))
