"""The facts that a slot has found out about its host, as values for `experiment.doctor`."""

from __future__ import annotations

import msgspec


class Software(msgspec.Struct, frozen=True, kw_only=True):
    """A host's Python.

    Attributes:
        python: Python's version.
        executable: Path of the interpreter.
        versions: Module to version; None if it is missing, '' if its version is unknown.
        source: A digest of our own packages.
    """

    python: str
    executable: str
    versions: dict[str, str | None]
    source: str


class TensorFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A host's TensorFlow.

    Attributes:
        version: TensorFlow's version.
        cuda: Version of the CUDA that it was built for; '' for none.
        gpus: The number of GPUs that it sees with the environment of a trial on this slot.
        seconds: Seconds of its import.
    """

    version: str
    cuda: str
    gpus: int
    seconds: float


class DriverCall(msgspec.Struct, frozen=True):
    """An answered call to the driver.

    Attributes:
        before: Time of the call, seconds since 1970 by the clock of this host.
        seconds: Seconds until the answer.
    """

    before: float
    seconds: float


class RoundTrip(msgspec.Struct, frozen=True):
    """A test of the folder for runs: files were written, renamed, read and removed.

    Attributes:
        seconds: Seconds of the test.
        shared: Whether the driver's file is there, with its content.
    """

    seconds: float
    shared: bool


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """A test of the user's data on a host.

    Attributes:
        files: The number of files.
        bytes: Bytes of all files.
        read: Bytes that were read, of the first file.
        seconds: Seconds of the test.
        copied: Whether trials read copies in the cache; files of the host itself are not copied.
    """

    files: int
    bytes: int
    read: int
    seconds: float
    copied: bool = True


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """The free space of a host, in bytes, and what the kernel does where memory is short.

    Attributes:
        memory: Free memory.
        scratch: Free bytes on the disk of Spark's local folder.
        cache: Free bytes on the disk of the cache; with `data`, the bytes that its copies may take.
        scratch_folder: Spark's local folder.
        cache_folder: The cache's folder.
        kills_all: Whether the kernel, out of memory, kills all processes of a container, not one.
    """

    memory: int
    scratch: int
    cache: int
    scratch_folder: str
    cache_folder: str
    kills_all: bool = False


class Gpus(msgspec.Struct, frozen=True):
    """GPUs of a slot.

    Attributes:
        assigned: Addresses of the GPUs that Spark assigned to it.
        present: The number of GPUs of its host.
    """

    assigned: tuple[str, ...]
    present: int


class Met(msgspec.Struct, frozen=True, kw_only=True):
    """Connections to other slots, as those of the workers of a trial.

    Attributes:
        others: The number of other slots.
        seconds: Seconds until all were connected.
    """

    others: int
    seconds: float


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The facts found by a slot. A fact is None if it was not requested or is unknown.

    Attributes:
        slot: Its name on the channel.
        host: Spark's name for its host.
        executor: Spark's id of its executor.
        trouble: Name of an unknown fact to the reason, in one line.
        software: The host's Python.
        tensorflow: The host's TensorFlow, from one slot per host, or from each that has GPUs.
        function: '' if the train function could be loaded; from one slot per host.
        driver: The call to the driver.
        folder: The test of the folder for runs.
        data: The test of the user's data.
        space: The free space.
        gpus: The slot's GPUs.
        workers: The connections to other slots; from one slot per host, or two on the only host.
        kept: The modules of each import that its executor keeps for searches.
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
    space: Room | None = None
    gpus: Gpus | None = None
    workers: Met | None = None
    kept: tuple[tuple[str, ...], ...] | None = None
