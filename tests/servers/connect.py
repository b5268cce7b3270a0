"""A server of Spark Connect, in a process of its own, whose executors are processes too."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from spark_jobs.cluster.task_needs import is_local
from tests import ROOT
from tests.servers import jvm
from tests.servers.entered import Entered
from tests.servers.hdfs import dying_with_parent, free_ports
from tests.servers.spark_home import spark_home

_SPARK = spark_home()
_START_SECONDS = 120
_END_SECONDS = 60


class ConnectServer(Entered):
    """A Spark Connect server on the loopback address. A context manager, which ends all of it.

    Executors use this interpreter, with this repository on its path. Who has no token is refused,
    and so is who does not belong to its Spark.

    Args:
        root: A folder, made if missing, for its log and its local files.
        master: The master of its application.
        settings: Additional Spark settings.

    Attributes:
        address: The address for `SparkSession.builder.remote`, with the token.
        log: The file with its output.
    """

    def __init__(self, root: Path, master: str, **settings: str) -> None:
        self.root, self._master = root.absolute(), master
        (self._port,) = free_ports(1)
        self._token = secrets.token_hex(16)
        # With a token pyspark's client wants TLS of any other name.
        self.address = f"sc://localhost:{self._port}/;token={self._token}"
        self.log = self.root / "server.log"
        self._settings = {
            "spark.authenticate": "true",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.memoryOverhead": "384m",
            "spark.executor.extraJavaOptions": jvm.SPARK_OPTIONS,
            "spark.local.dir": str(self.root / "local"),
            "spark.sql.warehouse.dir": "/nonexistent",
            "spark.ui.enabled": "false",
            **({} if is_local(master) else {"spark.authenticate.secret": secrets.token_hex(16)}),
            **settings,
        }
        self.process: psutil.Popen | None = None
        self._launcher: ThreadPoolExecutor | None = None

    def start(self) -> None:
        """Start it, and wait until it listens.

        Raises:
            RuntimeError: It ended; the message has the last lines of its log.
            TimeoutError: It does not listen.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        # A thread that keeps running, since the kernel kills a JVM with the thread that started it.
        self._launcher = ThreadPoolExecutor(1, "connect launcher")
        try:
            self.process = self._launcher.submit(self._launch).result()
            self._wait()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End it and all that it started; do nothing if stopped already."""
        if self.process is not None:
            self.kill()
            self.process = None
        if self._launcher is not None:
            self._launcher.shutdown()
            self._launcher = None

    def kill(self) -> None:
        """End it and all that it started, without a word; do nothing if it has ended."""
        assert self.process is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            tree = [self.process, *self.process.children(recursive=True)]
            for member in tree:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            psutil.wait_procs(tree, _END_SECONDS)

    def _launch(self) -> psutil.Popen:
        command = [str(_SPARK / "bin" / "spark-submit"), "--master", self._master]
        for name, value in self._settings.items():
            command += ["--conf", f"{name}={value}"]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "SPARK_CONNECT_AUTHENTICATE_TOKEN": self._token,
            "SPARK_HOME": str(_SPARK),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": jvm.SPARK_OPTIONS,
        }
        with self.log.open("wb") as log:
            return psutil.Popen(
                dying_with_parent([*command, "spark-internal"]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.root,
                env=environment,
                process_group=0,
            )

    def _wait(self) -> None:
        assert self.process is not None
        end = time.monotonic() + _START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
            if self.process.poll() is not None or time.monotonic() > end:
                lines = self.log.read_text(errors="replace").splitlines()[-40:]
                raise RuntimeError("\n".join(["the Connect server did not start:", *lines]))
