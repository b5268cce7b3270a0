"""A real standalone cluster of Spark, whose workers simulate hosts that a test can lose.

The master and each worker are JVMs of pyspark's own classes. A worker has an address of its own out
of 127.0.0.0/8, so Spark takes it for a host, though `socket.gethostname` is the same everywhere. It
announces two GPUs that are not there: 20 and 21 on 127.0.0.2, 30 and 31 on 127.0.0.3.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from tests import ROOT
from tests.servers import jvm
from tests.servers.entered import Entered
from tests.servers.hdfs import dying_with_parent, free_ports
from tests.servers.spark_home import spark_home

HOSTS = ("127.0.0.2", "127.0.0.3")

_SPARK = spark_home()
_GPUS = """#!/bin/sh
host=${SPARK_LOCAL_IP##*.}
echo "{\\"name\\": \\"gpu\\", \\"addresses\\": [\\"${host}0\\", \\"${host}1\\"]}"
"""
_START_SECONDS = 120
_END_SECONDS = 60
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Standalone(Entered):
    """A master, and a worker per host. A context manager, which ends all of it.

    Every process has a process group of its own. Logs and work folders lie under `root`; `stop`
    leaves the logs.

    Args:
        root: A folder, made if missing.
        hosts: Addresses of the workers.
        cores: Cores of each worker, and of its only executor.
        memory: Megabytes of each worker for executors.

    Attributes:
        master: The cluster's address for Spark, `spark://127.0.0.1:port`.
        hosts: The addresses of the workers.
    """

    def __init__(
        self, root: Path, hosts: Sequence[str] = HOSTS, *, cores: int = 1, memory: int = 1024
    ) -> None:
        self.root, self.hosts = root.absolute(), tuple(hosts)
        self._cores, self._memory = cores, memory
        port, self._web = free_ports(2)
        self.master = f"spark://127.0.0.1:{port}"
        self._security = {
            "spark.authenticate": "true",
            "spark.authenticate.secret": secrets.token_hex(16),
            "spark.network.crypto.enabled": "true",
        }
        self._processes: dict[str, psutil.Popen] = {}
        self._launcher: ThreadPoolExecutor | None = None

    def start(self) -> None:
        """Start all of it, and wait until the master knows every worker.

        Raises:
            RuntimeError: A process ended; the message has the last lines of its log.
            TimeoutError: The master does not know all workers.
        """
        if self._launcher is not None:
            raise ValueError("this cluster was started already")
        self.root.mkdir(parents=True, exist_ok=True)
        script = self.root / "discover-gpus"
        script.write_text(_GPUS)
        script.chmod(0o755)
        gpus = {"amount": "2", "discoveryScript": str(script)}
        settings = {f"spark.worker.resource.gpu.{name}": value for name, value in gpus.items()}
        settings |= self._security | {"spark.decommission.enabled": "true"}
        lines = [f"{name} {value}\n" for name, value in settings.items()]
        (self.root / "spark-defaults.conf").write_text("".join(lines))
        # A thread that keeps running, since the kernel kills a JVM with the thread that started it.
        self._launcher = ThreadPoolExecutor(1, "standalone launcher")
        address, port = self.master.removeprefix("spark://").split(":")
        ports = ("--port", port, "--webui-port", str(self._web))
        try:
            self._start("master", address, "master.Master", *ports)
            self.restore()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all processes at once; do nothing if stopped already."""
        for name in list(self._processes):
            self._kill(name)
        if self._launcher is not None:
            self._launcher.shutdown()
            self._launcher = None
        shutil.rmtree(self.root / "work", ignore_errors=True)

    def start_worker(self, host: str) -> None:
        """Start a worker, which must not run; see `wait_alive`."""
        folder = self.root / "work" / host
        folder.mkdir(parents=True, exist_ok=True)
        size = ("--cores", str(self._cores), "--memory", f"{self._memory}m")
        words = (*size, "--webui-port", "0", "--work-dir", str(folder), self.master)
        self._start(host, host, "worker.Worker", *words)

    def kill_worker(self, host: str) -> None:
        """End a worker and everything that it started, as if its host were lost."""
        self._kill(host)

    def decommission_worker(self, host: str) -> None:
        """Decommission a worker, and wait until the master knows.

        It takes nothing new. What runs there runs on until the worker is killed, and an executor
        with nothing to run ends; here Spark takes no notice of
        `spark.executor.decommission.forceKillTimeout`.
        """
        alive = self._alive() or self.hosts
        self._processes[host].send_signal(signal.SIGPWR)
        self.wait_alive([other for other in alive if other != host])

    def fill_disks(self, host: str) -> None:
        """Keep the Python workers of a worker from writing to files.

        Only those of daemons that already run: Spark starts one with an executor's first Python
        task. Spark itself can still write.
        """
        for executor in self.executors(host):
            for daemon in _descendants(executor):
                daemon.rlimit(psutil.RLIMIT_FSIZE, (0, 0))

    def restore(self) -> None:
        """Restart each worker that is not alive, and wait until the master knows all of them."""
        alive = self._alive() or []
        for host in self.hosts:
            if host in self._processes and host not in alive:
                self._kill(host)
            if host not in self._processes:
                self.start_worker(host)
        self.wait_alive(self.hosts)

    def executors(self, host: str) -> list[psutil.Process]:
        """Return the JVMs of a worker's executors."""
        return [
            process
            for process in _descendants(self._processes[host])
            if any(word.endswith("ExecutorBackend") for word in _command(process))
        ]

    def wait_alive(self, hosts: Sequence[str], timeout: float = _START_SECONDS) -> None:
        """Wait until exactly these workers are alive to the master.

        Raises:
            RuntimeError: A process ended without being killed.
        """
        end = time.monotonic() + timeout
        while (known := self._alive()) != sorted(hosts):
            for name, process in self._processes.items():
                if process.poll() is not None:
                    status = process.returncode
                    raise RuntimeError(f"{name} ended with status {status}\n{self._tail(name)}")
            if time.monotonic() > end:
                logs = "\n".join(map(self._tail, self._processes))
                raise TimeoutError(f"not {hosts} but {known} after {timeout:g} s\n{logs}")
            time.sleep(0.1)

    def settings(self) -> dict[str, str]:
        """Return Spark settings of an application with an executor on each worker."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.instances": str(len(self.hosts)),
            "spark.executor.memory": "512m",
            "spark.executor.cores": str(self._cores),
            "spark.executor.extraJavaOptions": jvm.SPARK_OPTIONS,
            "spark.executorEnv.PYTHONPATH": str(ROOT),
            **self._security,
        }

    def _start(self, name: str, host: str, main: str, *words: str) -> None:
        if name in self._processes:
            raise ValueError(f"{name} was started already, process {self._processes[name].pid}")
        if self._launcher is None:
            raise ValueError("this cluster was not started or was stopped")
        spark_class = [str(_SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}"]
        # Not as SPARK_CONF_DIR, which the class path would begin with: an archive of classes is not
        # used after a folder.
        settings = ("--properties-file", str(self.root / "spark-defaults.conf"))
        command = dying_with_parent([*spark_class, "--host", host, *settings, *words])
        environment = {
            **os.environ,
            "SPARK_HOME": str(_SPARK),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": jvm.SPARK_OPTIONS,
        }

        def launch() -> psutil.Popen:
            with (self.root / f"{name}.log").open("ab") as log:
                return psutil.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.root,
                    env=environment,
                    process_group=0,
                )

        self._processes[name] = self._launcher.submit(launch).result()

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name)
        tree = _freeze(process)
        for member in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        process.wait(_END_SECONDS)
        psutil.wait_procs(tree, _END_SECONDS)

    def _alive(self) -> list[str] | None:
        """Return the hosts of the workers alive to the master; None if it does not answer."""
        try:
            with _DIRECT.open(f"http://127.0.0.1:{self._web}/json/", timeout=2) as answer:
                workers = json.load(answer)["workers"]
        except (OSError, ValueError, http.client.HTTPException):
            return None
        return sorted(worker["host"] for worker in workers if worker["state"] == "ALIVE")

    def _tail(self, name: str, count: int = 40) -> str:
        log = self.root / f"{name}.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return "\n".join([f"last lines of {log}:", *lines[-count:]])


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = process.children(recursive=True)
        return found
    except psutil.NoSuchProcess:
        return []


def _command(process: psutil.Process) -> list[str]:
    try:
        words: list[str] = process.cmdline()
        return words
    except psutil.NoSuchProcess:
        return []


def _freeze(process: psutil.Process) -> list[psutil.Process]:
    """Stop a process and all that it started, and return them.

    Processes are stopped first and killed later, since children of a killed process get another
    parent and could not be found.
    """
    frozen: list[psutil.Process] = []
    while new := [p for p in [process, *_descendants(process)] if p not in frozen]:
        for member in new:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.suspend()
        frozen += new
    return frozen
