"""The start of a relay: `python -m spark_jobs.relay.start SERVER JVM PATH SECRETS`.

Light, since the other slots of the executor wait for it: the relay's imports come after the fork.
"""

from __future__ import annotations

import os
import sys


def main(server: int, jvm: int, path: str, secrets: int) -> None:
    """Run a relay that is no child of its starter, which may end before it."""
    if os.fork():
        os._exit(0)
    for descriptor in (server, jvm, secrets):
        os.set_inheritable(descriptor, False)
    from spark_jobs.relay import relay

    relay.main(server, jvm, path, secrets)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
