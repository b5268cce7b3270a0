"""Runs examples/hdfs_search.py on a small HDFS of its own: `make demo-hdfs`."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.sax.saxutils import escape

import hdfs as hdfs_package

from tests import ROOT
from tests.servers.hdfs import Hdfs

_EXAMPLE = ROOT / "examples" / "hdfs_search.py"


def main() -> None:
    """Start an HDFS, run the example on it, list the run, and end the HDFS."""
    with tempfile.TemporaryDirectory(prefix="demo-hdfs-") as folder, Hdfs(Path(folder)) as hdfs:
        print(f"an HDFS until this demo ends: {hdfs.uri}, WebHDFS at {hdfs.http}", flush=True)
        environment = {**os.environ, **client_environment(hdfs, Path(folder, "conf"))}
        home = make_home(hdfs)
        for words in (
            [str(_EXAMPLE), *sys.argv[1:]],
            ["-m", "experiment", "list", f"{hdfs.uri}{home}/experiments"],
        ):
            print(f"$ python {' '.join(words)}", flush=True)
            ended = subprocess.run([sys.executable, *words], env=environment)
            if ended.returncode:
                sys.exit(ended.returncode)


def client_environment(hdfs: Hdfs, folder: Path) -> dict[str, str]:
    """Write the configuration files of a client into a new folder; return how it finds them."""
    folder.mkdir()
    for name, prefix in (("core-site.xml", "fs."), ("hdfs-site.xml", "dfs.")):
        properties = "".join(
            f"<property><name>{escape(key)}</name><value>{escape(value)}</value></property>\n"
            for key, value in hdfs.settings().items()
            if key.startswith(prefix)
        )
        (folder / name).write_text(f"<configuration>\n{properties}</configuration>\n")
    return {"HADOOP_CONF_DIR": str(folder)}


def make_home(hdfs: Hdfs) -> str:
    """Make the user's home folder, as an administrator would; return its path."""
    home = f"/user/{getpass.getuser()}"
    client = hdfs_package.InsecureClient(hdfs.http, user=getpass.getuser(), timeout=30)
    client.makedirs(home)
    client._session.close()
    return home


if __name__ == "__main__":
    main()
