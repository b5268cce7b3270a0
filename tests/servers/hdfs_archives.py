"""Keeps the classes of HDFS's servers as they are once loaded: much of the work of a start.

`python -m tests.servers.hdfs_archives`, which `.ci/install` calls, writes an archive for each
server, and keeps the folder of a formatted NameNode.
"""

from __future__ import annotations

import contextlib
import getpass
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.storage.webhdfs import WebHdfs
from tests.servers import jvm
from tests.servers.hdfs import DATANODE, FORMATTED, NAMENODE, Hdfs, HdfsUnavailable, archive_of

_END_SECONDS = 120


class _ArchivedHdfs(Hdfs):
    """An HDFS of which each server writes an archive when it ends."""

    def end(self) -> None:
        """End the servers, and wait until their archives are written to `root`."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait(_END_SECONDS)

    def _format(self) -> None:
        shutil.rmtree(FORMATTED, ignore_errors=True)  # of another version, perhaps
        super()._format()
        new = FORMATTED.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(self.root / "data" / "namenode", new)
        new.rename(FORMATTED)

    def _java(self, main: str, properties: Mapping[str, str], *arguments: str) -> list[str]:
        words = super()._java(main, properties, *arguments)
        if arguments:  # a command, not a server
            return words
        archive = archive_of(main)
        kept = [word for word in words if word not in jvm.reading(archive)]
        return [kept[0], *jvm.writing(self.root / archive.name), *kept[1:]]


def main() -> None:
    """Write the archives, of servers that have written and read a file."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with _ArchivedHdfs(Path(folder), datanodes=1) as hdfs:
                file = Location.parse(f"{hdfs.uri}/file")
                settings = HadoopSettings(hdfs.settings(), getpass.getuser())
                with contextlib.closing(WebHdfs(file, settings)) as files:
                    files.write(file, b"text")
                    files.read(files.status(file), len)
                hdfs.end()
                for server in (NAMENODE, DATANODE):
                    archive = archive_of(server)
                    shutil.copy(hdfs.root / archive.name, archive.with_suffix(".new"))
                    archive.with_suffix(".new").replace(archive)
        except HdfsUnavailable as error:
            print(f"The tests of HDFS will be skipped: {error}")
        except (OSError, subprocess.TimeoutExpired) as error:  # an archive only saves time
            print(f"The tests start HDFS without archives of loaded classes: {error}")


if __name__ == "__main__":
    main()
