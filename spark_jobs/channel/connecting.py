"""How a slot finds its way to the driver: straight, or through the mailbox on storage."""

from __future__ import annotations

from search.errors import InvalidArgument
from spark_jobs.channel.exchange import SlotChannel
from spark_jobs.channel.file_channel import FileChannelClient
from spark_jobs.channel.grpc_channel import Address, ChannelClient
from spark_jobs.storage.hadoop_settings import HadoopSettings

_PROBE = 10.0  # seconds that the driver has to answer, where it does not refuse at once


def connect(
    address: Address, slot: str, host: str, hadoop: HadoopSettings
) -> tuple[SlotChannel, str]:
    """Return a slot's channel, and what the user should know of it, or ''.

    Where there is a mailbox, the driver is given some seconds to answer; where it does not, and
    this host sees the mailbox, that is the channel from then on.

    Args:
        address: Of the driver.
        slot: The slot's name.
        host: Where it runs, for people.
        hadoop: Where HDFS is.
    """
    direct = ChannelClient(address, slot)
    if address.mailbox is None or direct.reaches(_PROBE):
        return direct, ""
    try:
        mailbox = FileChannelClient(address.mailbox, slot, hadoop)
    except (OSError, InvalidArgument):  # then only the driver's address is left
        return direct, ""
    direct.__exit__()
    return mailbox, (
        f"host {host} does not reach the driver at {address.target}, so what trials there and on "
        "others like it say goes through the run's folder, a second or so slower per trial; open "
        "that port to the executors if you can"
    )
