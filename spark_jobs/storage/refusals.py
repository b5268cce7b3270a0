"""Errors of arguments that name a place on storage."""

from __future__ import annotations

import errno

from search.errors import InvalidArgument

_MAY_PASS = frozenset((errno.EDQUOT, errno.EIO, errno.ENOSPC, errno.ENOTCONN, errno.ESTALE))


class StorageFailed(InvalidArgument):
    """An argument that names a place on storage that fails, perhaps only for a while."""


def refused(error: OSError, name: str, expected: str, got: str, hint: str = "") -> InvalidArgument:
    """Return the error of an argument that names a place, for an error of its storage.

    Args:
        error: The error; that of an HDFS that does not answer, or of a full disk, may pass.
        name: As for `InvalidArgument`, and so are the others.
        expected: See there.
        got: See there.
        hint: See there.
    """
    passes = isinstance(error, ConnectionError | TimeoutError) or error.errno in _MAY_PASS
    return (StorageFailed if passes else InvalidArgument)(name, expected, got, hint)
