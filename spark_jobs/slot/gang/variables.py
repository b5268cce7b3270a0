"""The environment variables by which training frameworks find the other members of a gang."""

from __future__ import annotations

import json

from spark_jobs.addresses import split_address
from spark_jobs.messages import Gang


def variables_of(gang: Gang | None) -> dict[str, str | None]:
    """Return the variables of a member; none for a trial on one slot.

    Those of `torch.distributed` and of `tf.distribute`. `LOCAL_RANK` is the number of the GPU to
    use, and each member sees only its own.
    """
    if gang is None:
        return {}
    host, port = split_address(gang.servers[0])
    cluster = {"cluster": {"worker": gang.servers}, "task": {"type": "worker", "index": gang.rank}}
    return {
        "RANK": str(gang.rank),
        "WORLD_SIZE": str(len(gang.members)),
        "LOCAL_RANK": "0",
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
        "TF_CONFIG": json.dumps(cluster),
    }
