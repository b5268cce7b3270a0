"""The choice of a slot's channel to the driver: gRPC, or the mailbox on storage."""

from __future__ import annotations

from search.errors import InvalidArgument
from spark_jobs.channel.exchange import SlotChannel
from spark_jobs.channel.file_channel import FileChannelClient
from spark_jobs.channel.grpc_channel import Address, ChannelClient
from spark_jobs.storage.hadoop_settings import HadoopSettings

_PROBE = 10.0  # seconds to wait for the driver's answer


def connect(
    address: Address, slot: str, host: str, hadoop: HadoopSettings
) -> tuple[SlotChannel, str]:
    """Return a slot's channel, and a warning for the user, or ''.

    If there is a mailbox, the driver has some seconds to answer; if it does not, and this host can
    access the mailbox, the mailbox is the channel from then on.

    Args:
        address: The driver's address.
        slot: The slot's name.
        host: The slot's host, for the warning.
        hadoop: The Hadoop settings.
    """
    direct = ChannelClient(address, slot)
    if address.mailbox is None or direct.reaches(_PROBE):
        return direct, ""
    try:
        mailbox = FileChannelClient(address.mailbox, slot, hadoop)
    except (OSError, InvalidArgument):  # without the mailbox only the driver's address remains
        return direct, ""
    direct.__exit__()
    return mailbox, (
        f"host {host} does not reach the driver at {address.target}, so messages of trials there "
        "and on hosts like it go through the run's folder, about a second slower per trial; open "
        "that port to the executors if you can"
    )
