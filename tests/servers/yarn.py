"""A real YARN on the loopback address: one ResourceManager and one NodeManager.

Hadoop's classes are those of `hdfs`; the ResourceManager wants Bouncy Castle beside them, which
Spark's own resolver fetches once. Containers run as this user, their files lie under `root`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Self
from xml.etree import ElementTree

import pyspark

from tests.servers import jvm
from tests.servers.hdfs import class_path, dying_with_parent, free_ports

_SPARK = Path(pyspark.__file__).parent
_SERVER = "org.apache.hadoop.yarn.server"
_SERVERS = ("resourcemanager.ResourceManager", "nodemanager.NodeManager")
_OPENED = [
    f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.net", "java.util")
]
_BOUNCY_CASTLE = "org.bouncycastle:bcpkix-jdk18on:1.82"
_FETCH_SECONDS = 200
_START_SECONDS = 200
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Yarn:
    """A YARN with one host. A context manager, which ends all of it.

    Args:
        root: A folder, made if missing.

    Attributes:
        configuration: The folder for HADOOP_CONF_DIR.
        java: The folder for JAVA_HOME of containers.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.configuration = self.root / "conf"
        java = os.environ.get("JAVA_HOME") or Path(shutil.which("java") or "").resolve().parents[1]
        self.java = str(java)
        self._web, *self._ports = free_ports(8)
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.configuration.mkdir(parents=True)
        site = ElementTree.Element("configuration")
        for name, value in self._properties().items():
            entry = ElementTree.SubElement(site, "property")
            ElementTree.SubElement(entry, "name").text = name
            ElementTree.SubElement(entry, "value").text = value
        for file in ("core-site.xml", "yarn-site.xml"):
            ElementTree.ElementTree(site).write(self.configuration / file)
        path = os.pathsep.join([str(self.configuration), class_path(), *map(str, _bouncy_castle())])
        try:
            for name in _SERVERS:
                words = [
                    "java",
                    *jvm.OPTIONS,
                    "-Xmx256m",
                    *_OPENED,
                    "-cp",
                    path,
                    f"{_SERVER}.{name}",
                ]
                with (self.root / f"{name}.log").open("wb") as log:
                    command = dying_with_parent(words)
                    self._processes.append(
                        subprocess.Popen(command, stdout=log, stderr=log, cwd=self.root)
                    )
            self._wait()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def settings(self) -> dict[str, str]:
        """Return Spark settings of an application."""
        return {
            "spark.yarn.jars": f"local:{_SPARK}/jars/*",
            "spark.yarn.stagingDir": (self.root / "staging").as_uri(),
            "spark.yarn.appMasterEnv.JAVA_HOME": self.java,
            "spark.executorEnv.JAVA_HOME": self.java,
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": jvm.SPARK_OPTIONS,
            "spark.executor.extraJavaOptions": jvm.SPARK_OPTIONS,
            "spark.yarn.am.extraJavaOptions": jvm.SPARK_OPTIONS,
            "spark.ui.enabled": "false",
        }

    def applications(self) -> list[dict[str, str]]:
        """Return the ResourceManager's report of each application, the newest last."""
        found = self._asked("apps")["apps"] or {"app": []}
        return sorted(found["app"], key=lambda app: app["startedTime"])

    def _properties(self) -> dict[str, str]:
        manager, node = "yarn.resourcemanager", "yarn.nodemanager"
        names = (
            *(
                f"{manager}{part}.address"
                for part in ("", ".scheduler", ".resource-tracker", ".admin")
            ),
            *(f"{node}{part}.address" for part in ("", ".localizer", ".webapp")),
        )
        scheduler = "resourcemanager.scheduler.fifo.FifoScheduler"
        return {
            **{n: f"127.0.0.1:{port}" for n, port in zip(names, self._ports, strict=True)},
            f"{manager}.webapp.address": f"127.0.0.1:{self._web}",
            f"{manager}.scheduler.class": f"{_SERVER}.{scheduler}",
            f"{node}.hostname": "127.0.0.1",
            f"{node}.resource.memory-mb": "6144",
            f"{node}.resource.cpu-vcores": "8",
            f"{node}.local-dirs": str(self.root / "local"),
            f"{node}.log-dirs": str(self.root / "logs"),
            f"{node}.pmem-check-enabled": "false",
            f"{node}.vmem-check-enabled": "false",
            f"{node}.disk-health-checker.enable": "false",
            "yarn.scheduler.minimum-allocation-mb": "256",
            "hadoop.tmp.dir": str(self.root / "tmp"),
        }

    def _wait(self) -> None:
        end = time.monotonic() + _START_SECONDS
        while True:
            try:
                nodes = self._asked("nodes")["nodes"] or {"node": []}
            except (OSError, ValueError):
                nodes = {"node": []}
            if any(node["state"] == "RUNNING" for node in nodes["node"]):
                return
            if time.monotonic() > end or any(p.poll() is not None for p in self._processes):
                logs = [(self.root / f"{name}.log").read_text()[-3000:] for name in _SERVERS]
                raise RuntimeError("YARN does not start\n" + "\n".join(logs))
            time.sleep(0.2)

    def _asked(self, what: str) -> dict:
        url = f"http://127.0.0.1:{self._web}/ws/v1/cluster/{what}"
        request = urllib.request.Request(url, headers={"Accept": "application/json"})
        with _DIRECT.open(request, timeout=10) as answer:
            return json.load(answer)

    def _stop(self) -> None:
        for process in reversed(self._processes):  # the NodeManager first: it ends its containers
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()


def _bouncy_castle() -> list[Path]:
    """Return Bouncy Castle's jars, fetched into the cache by the first call."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home, "spark-tf-experiment-tests", _BOUNCY_CASTLE.replace(":", "-"))
    if not list(folder.glob("jars/*.jar")):
        command = [
            str(_SPARK / "bin" / "spark-submit"),
            *("--master", "local", "--packages", _BOUNCY_CASTLE),
            *("--conf", f"spark.jars.ivy={folder}"),
            # A short process that ends by itself.
            *("--class", "org.apache.hadoop.util.VersionInfo", "spark-internal"),
        ]
        environment = {**os.environ, "SPARK_HOME": str(_SPARK)}
        subprocess.run(
            dying_with_parent(command), env=environment, check=True, timeout=_FETCH_SECONDS
        )
    return sorted(folder.glob("jars/*.jar"))
