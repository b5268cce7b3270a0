import errno
import os

import pytest

from search.errors import InvalidArgument
from spark_jobs.storage.refusals import StorageFailed, refused


def os_error(number):
    return OSError(number, os.strerror(number), "/runs")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionError("hdfs://host/runs: HDFS failed for 120 s"), StorageFailed),
        (ConnectionResetError(), StorageFailed),
        (TimeoutError(), StorageFailed),
        (os_error(errno.ENOSPC), StorageFailed),
        (os_error(errno.EDQUOT), StorageFailed),
        (os_error(errno.EIO), StorageFailed),
        (os_error(errno.ESTALE), StorageFailed),
        (os_error(errno.EACCES), InvalidArgument),
        (os_error(errno.ENOENT), InvalidArgument),
        (os_error(errno.ENOTDIR), InvalidArgument),
        (os_error(errno.EROFS), InvalidArgument),
        (OSError("hdfs://host/runs: the server is no WebHDFS"), InvalidArgument),
    ],
    ids=repr,
)
def test_only_an_error_that_may_pass_is_the_storage_s(error, kind):
    refusal = refused(error, "logdir", "a folder", "'/runs'", "try again")
    assert type(refusal) is kind
    assert str(refusal) == "logdir: expected a folder, got '/runs'; try again"
