"""A member's place in its gang, and the errors of a gang's connections."""

from __future__ import annotations

import msgspec

from search.errors import ExperimentError, InvalidArgument
from spark_jobs.addresses import split_address


class GangBroken(ExperimentError):
    """A member cannot be reached, has ended, or did not come to a call in time.

    Attributes:
        rank: The rank of that member.
        address: Its address, as "host:port".
    """

    def __init__(self, message: str, rank: int, address: str) -> None:
        self.rank = rank
        self.address = address
        super().__init__(message, rank, address)

    def __str__(self) -> str:
        return str(self.args[0])


class MemberSilent(GangBroken):
    """A member did not answer in time; it may be slow, while one that has ended shows that."""


class MembersDisagree(ExperimentError, ValueError):
    """Two members made different calls, or passed arrays of different shapes or types."""


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """A member's place in a gang. Secret: the key admits to the gang.

    Attributes:
        rank: The member's rank, from 0.
        members: The addresses of all members by rank, as "host:port".
        key: The private key that the driver made for this gang (`make_certificate`), PEM.
        certificate: Its certificate, PEM. All members have the same pair.
    """

    rank: int
    members: tuple[str, ...]
    key: str
    certificate: str

    def __post_init__(self) -> None:
        for address in self.members:
            host_and_port(address)
        if not 0 <= self.rank < len(self.members):
            expected = f"0 to {len(self.members) - 1}, a rank of the {len(self.members)} members"
            raise InvalidArgument("rank", expected, str(self.rank))

    def __repr__(self) -> str:
        return f"Membership({self.rank}, {self.members!r})"

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.members)

    def name(self, rank: int) -> str:
        """Return a member's name for messages: "worker 2 at 10.0.0.5:23456"."""
        return f"worker {rank} at {self.members[rank]}"

    def broken(self, rank: int, what: str) -> GangBroken:
        """Return the error that says `what` is wrong with the member of a rank."""
        return GangBroken(f"{self.name(rank)} {what}", rank, self.members[rank])

    def silent(self, rank: int, what: str) -> MemberSilent:
        """Return the error that says for how long the member of a rank has not answered."""
        return MemberSilent(f"{self.name(rank)} {what}", rank, self.members[rank])


def host_and_port(address: str) -> tuple[str, int]:
    """Return the host and the port of "host:port"; an IPv6 address may be in brackets.

    Raises:
        InvalidArgument: It is no such address.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) >= 1 << 16:
        raise InvalidArgument("members", "addresses such as '10.0.0.5:23456'", repr(address))
    return split_address(address)
