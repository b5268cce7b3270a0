"""A module per peer, whose class `Program` is the peer's `program.Peer`."""
