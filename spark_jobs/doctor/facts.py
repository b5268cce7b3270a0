"""What a slot has found out about its host and its ways: values, for `experiment.doctor`."""

from __future__ import annotations

import msgspec


class Software(msgspec.Struct, frozen=True, kw_only=True):
    """What Python is there.

    Attributes:
        python: Its version.
        executable: Its path.
        versions: By module; None where it is missing, '' where nobody knows.
        source: A digest of our own packages.
    """

    python: str
    executable: str
    versions: dict[str, str | None]
    source: str


class TensorFlow(msgspec.Struct, frozen=True, kw_only=True):
    """What TensorFlow says of itself.

    Attributes:
        version: Its version.
        cuda: Of the CUDA that it was built for; '' where for none.
        gpus: How many it sees with the variables of a trial on this slot.
        seconds: That its import took.
    """

    version: str
    cuda: str
    gpus: int
    seconds: float


class DriverCall(msgspec.Struct, frozen=True):
    """A call to the driver that was answered.

    Attributes:
        before: When it was made, seconds since 1970 by the clock of this host.
        seconds: Until the answer was there.
    """

    before: float
    seconds: float


class RoundTrip(msgspec.Struct, frozen=True):
    """Files that were written, renamed, read and removed.

    Attributes:
        seconds: That it took.
        shared: Is the driver's file there, with its content?
    """

    seconds: float
    shared: bool


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """The user's data as a host sees it.

    Attributes:
        files: How many there are.
        bytes: Of all of them.
        read: Bytes that were read, of the first.
        seconds: That it took.
    """

    files: int
    bytes: int
    read: int
    seconds: float


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """What is free on a host, in bytes.

    Attributes:
        memory: Of it.
        scratch: On the disk of Spark's local folder.
        cache: On the disk of the copies of data; as many as these may take, with `data`.
        scratch_folder: Spark's local folder.
        cache_folder: Of the copies.
    """

    memory: int
    scratch: int
    cache: int
    scratch_folder: str
    cache_folder: str


class Gpus(msgspec.Struct, frozen=True):
    """GPUs of a slot.

    Attributes:
        assigned: Addresses that Spark has given it.
        present: How many its host shows.
    """

    assigned: tuple[str, ...]
    present: int


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a slot has found out. A fact is None where it was not asked for or is not known.

    Attributes:
        slot: Its name on the channel.
        host: Spark's name of its host.
        executor: Spark's name of its executor.
        trouble: By the name of a fact: why it is not known, in one line.
        software: The Python of the host.
        tensorflow: In one slot of each host, or in each that has GPUs.
        function: '' where the train function could be loaded; in one slot of each host.
        driver: How it reached the driver.
        folder: How it fared with the folder for runs.
        data: The user's data.
        space: What is free.
        gpus: Of the slot.
    """

    slot: str
    host: str
    executor: str
    trouble: dict[str, str] = {}
    software: Software | None = None
    tensorflow: TensorFlow | None = None
    function: str | None = None
    driver: DriverCall | None = None
    folder: RoundTrip | None = None
    data: Data | None = None
    space: Space | None = None
    gpus: Gpus | None = None
