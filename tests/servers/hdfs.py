"""A real HDFS on the loopback address, whose processes a test can kill, pause and start again.

One NameNode and some DataNodes, each a JVM of its own, with WebHDFS on. Almost all of Hadoop's
classes come with pyspark. The rest is fetched once by Spark's own resolver and kept uncompressed,
since the servers scan their classes at each start. `hdfs_archives` makes a start cheaper.
"""

from __future__ import annotations

import fcntl
import glob
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

from tests.servers import jvm
from tests.servers.entered import Entered

_SPARK = Path(pyspark.__file__).parent
NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_DFSADMIN = "org.apache.hadoop.hdfs.tools.DFSAdmin"
_JVM_OPTIONS = (*jvm.OPTIONS, "-Xmx128m", "-Dorg.apache.logging.log4j.level=WARN")
FORMATTED = Path(sys.prefix, "hdfs-formatted")
_CLASSES = "classes.jar"
_FETCH_SECONDS = 200
_START_SECONDS = 120
_COMMAND_SECONDS = 240
# How old the servers' counters may be; 10 s by default. A server that renews them every 10 ms takes
# twice the processor time when idle.
_COUNTED_SECONDS = 0.1
_NO_ANSWER = (OSError, LookupError, ValueError, http.client.HTTPException)
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))

# Not a function to run after the fork: the tests' process has threads, gRPC's among them.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent ended before the start")
os.execvp(sys.argv[2], sys.argv[2:])
"""


class HdfsUnavailable(Exception):
    """Hadoop's server classes are not in the cache and cannot be fetched."""


class Hdfs(Entered):
    """A NameNode, named `namenode`, and DataNodes, named `datanode0`, `datanode1` and so on.

    Every file lies under `root`. `stop` deletes the stored data and leaves the logs. The
    addresses stay the same when a process is started again. A test may start and end processes
    from any of its threads, but the same process from one at a time.

    Args:
        root: A folder for the logs and the data, made if missing. Hadoop cannot have a space or
            another character there that a URI escapes.
        datanodes: Number of DataNodes.
        replication: Copies of each block; at most 2 by default.
        properties: Additional Hadoop properties for all processes. With `dfs.http.policy` of
            HTTPS_ONLY, all web addresses are HTTPS.
        opener: The opener for requests to the web addresses, if they need a certificate or a
            ticket.

    Attributes:
        uri: Its URI for Hadoop's own clients, `hdfs://127.0.0.1:port`.
        http: Its address for WebHDFS clients, `http://127.0.0.1:port` or `https://...`.
        datanode_http_ports: The port to which WebHDFS redirects for each DataNode.
    """

    def __init__(
        self,
        root: Path,
        datanodes: int = 2,
        *,
        replication: int | None = None,
        properties: Mapping[str, str] | None = None,
        opener: urllib.request.OpenerDirector = _DIRECT,
    ) -> None:
        self.root = root.absolute()
        if self.root.as_uri() != f"file://{self.root}":
            raise ValueError(f"Hadoop cannot store in {self.root}: choose a plain ASCII name")
        rpc, web, *ports = free_ports(2 + 3 * datanodes)
        self._properties, self._opener = dict(properties or {}), opener
        secure = self._properties.get("dfs.http.policy") == "HTTPS_ONLY"
        self._scheme = "https" if secure else "http"
        self.uri, self.http = f"hdfs://127.0.0.1:{rpc}", f"{self._scheme}://127.0.0.1:{web}"
        self.datanode_http_ports = ports[:datanodes]
        self._other_ports = ports[datanodes:]
        self._replication = min(2, datanodes) if replication is None else replication
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._launcher: ThreadPoolExecutor | None = None
        self._class_path = ""

    def start(self) -> None:
        """Format and start all of it, and wait until it serves.

        Raises:
            HdfsUnavailable: Hadoop's server classes cannot be fetched.
            RuntimeError: A process ended; the message has the last lines of its log.
            TimeoutError: It does not serve; the message has the last lines of all logs.
        """
        if self._launcher is not None:
            raise ValueError("this HDFS was started already")
        self._class_path = os.pathsep.join([class_path(), str(self.root)])
        (self.root / "data" / "tmp").mkdir(parents=True, exist_ok=True)
        period = f"*.periodMillis={1000 * _COUNTED_SECONDS:.0f}\n"
        (self.root / "hadoop-metrics2.properties").write_text(period)
        # A thread that keeps running, since the kernel kills a JVM with the thread that started it.
        self._launcher = ThreadPoolExecutor(1, "hdfs launcher")
        try:
            self._format()
            self.restore()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all processes at once and delete the stored data; do nothing if stopped already."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(_COMMAND_SECONDS)
        self._processes.clear()
        if self._launcher is not None:
            self._launcher.shutdown()
            self._launcher = None
        shutil.rmtree(self.root / "data", ignore_errors=True)

    def start_namenode(self) -> None:
        """Start the NameNode, which must not run; see `wait_ready`."""
        self._start("namenode", NAMENODE, {})

    def start_datanode(self, number: int) -> None:
        """Start a DataNode, which must not run, with the data that it had; see `wait_ready`."""
        transfer, calls = self._other_ports[2 * number : 2 * number + 2]
        own = {
            "dfs.datanode.data.dir": self._folder(f"datanode{number}"),
            f"dfs.datanode.{self._scheme}.address": f"127.0.0.1:{self.datanode_http_ports[number]}",
            "dfs.datanode.address": f"127.0.0.1:{transfer}",
            "dfs.datanode.ipc.address": f"127.0.0.1:{calls}",
        }
        self._start(f"datanode{number}", DATANODE, own)

    def kill(self, name: str) -> None:
        """Kill a process with SIGKILL, and wait until it has ended."""
        process = self._processes.pop(name)
        process.kill()
        process.wait(_COMMAND_SECONDS)

    def pause(self, name: str) -> None:
        """Make a process hang: its ports still accept, but nothing answers."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Continue a paused process."""
        self._processes[name].send_signal(signal.SIGCONT)

    def restore(self) -> None:
        """Continue or start all processes that do not run, and wait until all of them serve."""
        for name in self._processes:
            self.resume(name)
        if "namenode" not in self._processes:
            self.start_namenode()
        for number in range(len(self.datanode_http_ports)):
            if f"datanode{number}" not in self._processes:
                self.start_datanode(number)
        self.wait_ready()

    def pids(self) -> dict[str, int]:
        """Return the process id of each process that was started and not killed."""
        return {name: process.pid for name, process in self._processes.items()}

    def wait_ready(self, live: int | None = None, timeout: float = _START_SECONDS) -> None:
        """Wait until the NameNode takes writes and knows at least `live` answering DataNodes.

        Args:
            live: Number of DataNodes; all that run by default.
            timeout: Seconds after which TimeoutError says what is missing.

        Raises:
            RuntimeError: A process ended without being killed.
        """
        if live is None:
            live = sum(name != "namenode" for name in self._processes)
        end = time.monotonic() + timeout
        while missing := self._missing(live):
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise RuntimeError(self._ended(name, process.returncode))
            if time.monotonic() > end:
                logs = "\n".join(_tail(self.root / f"{name}.log") for name in self._processes)
                raise TimeoutError(f"HDFS is not ready after {timeout:g} s: {missing}\n{logs}")
            time.sleep(0.1)

    def admin(self, *arguments: str) -> str:
        """Run `hdfs dfsadmin`, such as `admin("-safemode", "enter")`; return what it printed.

        Raises:
            RuntimeError: It was refused.
        """
        command = self._java(_DFSADMIN, {}, "-fs", self.uri, *arguments)
        process = self._launch(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            output, errors = process.communicate(timeout=_COMMAND_SECONDS)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        if process.returncode:
            raise RuntimeError(f"dfsadmin {' '.join(arguments)}: {(output + errors).decode()}")
        return output.decode()

    def settings(self) -> dict[str, str]:
        """Return a client's Hadoop properties; Spark wants `spark.hadoop.` before each name."""
        return {
            "fs.defaultFS": self.uri,
            f"dfs.namenode.{self._scheme}-address": self.http.partition("://")[2],
            "dfs.replication": str(self._replication),
        }

    def bytes_read(self, number: int) -> int:
        """Return how many bytes, checksums included, a DataNode has read from its blocks.

        Counted since its start. It does not tell to whom WebHDFS sent a client: the DataNode that
        answers reads from any replica, since on one host all are equally near. So for WebHDFS
        compare the sum over all DataNodes.
        """
        time.sleep(2 * _COUNTED_SECONDS)  # until the counters contain what was read before the call
        return self._datanode_bean(number, "DataNodeActivity-*", timeout=60)["BytesRead"]

    def _format(self) -> None:
        formatted = formatted_by_this_user()
        if formatted is not None and not self._properties:
            shutil.copytree(formatted, self.root / "data" / "namenode")
            return
        log = self.root / "format.log"
        command = self._java(NAMENODE, self._server(), "-format", "-nonInteractive")
        with log.open("ab") as output:
            process = self._launch(command, stdout=output, stderr=output)
        self._processes["format"] = process
        try:
            process.wait(_START_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{error}\n{_tail(log)}") from error
        del self._processes["format"]
        if process.returncode:
            raise RuntimeError(self._ended("format", process.returncode))

    def _start(self, name: str, main: str, own: Mapping[str, str]) -> None:
        if name in self._processes:
            raise ValueError(f"{name} was started already, process {self._processes[name].pid}")
        with (self.root / f"{name}.log").open("ab") as output:
            self._processes[name] = self._launch(
                self._java(main, {**self._server(), **own}), stdout=output, stderr=output
            )

    def _launch(self, command: list[str], **streams: Any) -> subprocess.Popen[bytes]:
        if self._launcher is None:
            raise ValueError("this HDFS was not started or was stopped")

        def launch() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                dying_with_parent(command), stdin=subprocess.DEVNULL, cwd=self.root, **streams
            )

        return self._launcher.submit(launch).result()

    def _java(self, main: str, properties: Mapping[str, str], *arguments: str) -> list[str]:
        home = os.environ.get("JAVA_HOME")
        java = str(Path(home, "bin", "java")) if home else "java"
        temporary = f"-Djava.io.tmpdir={self.root / 'data' / 'tmp'}"
        pairs = [word for item in properties.items() for word in ("-D", "=".join(item))]
        options = [*_JVM_OPTIONS, *jvm.reading(archive_of(main)), temporary]
        return [java, *options, "-cp", self._class_path, main, *pairs, *arguments]

    def _server(self) -> dict[str, str]:
        return {
            **self.settings(),
            "dfs.namenode.name.dir": self._folder("namenode"),
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.namenode.safemode.extension": "0",
            "dfs.blocksize": "16m",
            # A DataNode that is silent is dead after 12 s, not after 10.5 minutes.
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.heartbeat.recheck-interval": "1000",
            # A replica that a killed DataNode was to make is asked for again after 10 s, not 5 min.
            "dfs.namenode.reconstruction.pending.timeout-sec": "10",
            "dfs.namenode.redundancy.interval.seconds": "1s",
            # A thread looks for blocks to delete once a second, not 100 times.
            "dfs.namenode.block.deletion.unlock.interval.ms": "1000",
            **self._properties,
        }

    def _folder(self, name: str) -> str:
        return (self.root / "data" / name).as_uri()

    def _missing(self, live: int) -> str:
        """Return what `live` ready DataNodes still lack; empty if nothing."""
        try:
            info = self._bean(self.http, "service=NameNode,name=NameNodeInfo")
        except _NO_ANSWER as error:
            return f"the NameNode does not answer: {error!r}"
        if info["Safemode"]:
            return info["Safemode"]
        web = "infoAddr" if self._scheme == "http" else "infoSecureAddr"
        known = {node[web]: node for node in json.loads(info["LiveNodes"]).values()}
        ready = 0
        for number, port in enumerate(self.datanode_http_ports):
            node = known.get(f"127.0.0.1:{port}")
            fresh = node is not None and node["capacity"] > 0 and node["lastContact"] < 3
            # The NameNode still knows one that was killed and started a moment ago.
            ready += fresh and self._is_registered(number)
        return "" if ready >= live else f"{ready} of {live} DataNodes are ready"

    def _is_registered(self, number: int) -> bool:
        try:
            services = self._datanode_bean(number, "DataNodeInfo")["BPServiceActorInfo"]
        except _NO_ANSWER:
            return False
        return any(service["ActorState"] == "RUNNING" for service in json.loads(services))

    def _datanode_bean(self, number: int, name: str, timeout: float = 2) -> dict[str, Any]:
        address = f"{self._scheme}://127.0.0.1:{self.datanode_http_ports[number]}"
        return self._bean(address, f"service=DataNode,name={name}", timeout)

    def _bean(self, address: str, name: str, timeout: float = 2) -> dict[str, Any]:
        """Return the attributes of a JMX bean; LookupError if it is not there yet."""
        with self._opener.open(f"{address}/jmx?qry=Hadoop:{name}", timeout=timeout) as answer:
            return json.load(answer)["beans"][0]

    def _ended(self, name: str, status: int) -> str:
        return f"{name} ended with status {status}\n{_tail(self.root / f'{name}.log')}"


class GivenHdfs:
    """An existing cluster. Tests that end its processes are skipped.

    Args:
        addresses: "hdfs://host:port,http://host:port", its RPC and its HTTP address. The tests
            write to folders of its root.
    """

    def __init__(self, addresses: str) -> None:
        self.uri, _, self.http = addresses.partition(",")
        if not (self.uri.startswith("hdfs://") and self.http.startswith("http")):
            raise ValueError(f"want hdfs://host:port,http://host:port, got {addresses!r}")

    def settings(self) -> dict[str, str]:
        """Return its Hadoop properties; see `Hdfs`."""
        return {
            "fs.defaultFS": self.uri,
            "dfs.namenode.http-address": self.http.partition("://")[2],
        }

    def restore(self) -> None:
        """Do nothing: no process was ended."""

    def __getattr__(self, name: str) -> Any:
        import pytest

        pytest.skip(f"a cluster that is given is not to be harmed: {name}")


def archive_of(main: str) -> Path:
    """Return the archive of a server's classes, see `hdfs_archives`; it may not exist."""
    return Path(sys.prefix, f"hdfs-{'datanode' if main == DATANODE else 'namenode'}.jsa")


def formatted_by_this_user() -> Path | None:
    """Return the folder of a formatted NameNode, whose user is its superuser; None without one.

    `hdfs_archives` keeps it, since to format is a JVM's start.
    """
    found = FORMATTED.is_dir() and FORMATTED.stat().st_uid == os.getuid()
    return FORMATTED if found else None


def class_path() -> str:
    """Return the class path of the servers, without a folder of configuration files.

    Jars come first, since archives hold no classes after a folder.
    """
    folder = server_classes()
    names = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "jcl-over-slf4j")
    logs = ("log4j-slf4j2-impl", "log4j-1.2-api", "log4j-api", "log4j-core")
    jars = [str(_jar(name)) for name in (*names, *logs)]
    return os.pathsep.join([str(folder / _CLASSES), *jars, str(folder)])


def server_classes() -> Path:
    """Return the folder of Hadoop's server classes, fetched into the cache by the first call.

    The classes are in one jar, and what the servers want as files is beside it.

    Raises:
        HdfsUnavailable: They cannot be fetched.
    """
    version = _jar("hadoop-client-api").stem.removeprefix("hadoop-client-api-")
    name = f"hadoop-servers-{version}"
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(home, "spark-tf-experiment-tests")
    folder = cache / name
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with _alone(cache / f"{name}.lock"):
        if not folder.is_dir():
            # A killed process has left its parts, which no other process uses now.
            parts = cache / f"{name}.part"
            shutil.rmtree(parts, ignore_errors=True)
            try:
                jars = _fetch(version, parts / "ivy")
                _unpack(jars, parts / "folder")
                (parts / "folder").rename(folder)
            finally:
                shutil.rmtree(parts, ignore_errors=True)
    return folder


def dying_with_parent(command: list[str]) -> list[str]:
    """Return a command that the kernel kills when the thread that starts it ends."""
    return [sys.executable, "-ISc", _DIE_WITH_PARENT, str(os.getpid()), *command]


def free_ports(count: int) -> list[int]:
    """Return different ports of the loopback address on which nothing listens.

    They lie below those that the kernel gives to outgoing connections, and below those of workers
    of a trial, so that none of these takes the port of a process between its end and its next
    start. No other call, of any process of tests, returns them before this process ends.
    """
    free: list[int] = []
    for port in random.SystemRandom().sample(range(10_000, 20_000), 500):
        claim = socket.socket(socket.AF_UNIX)
        with socket.socket() as candidate:
            try:
                claim.bind(f"\0port {port} of tests")
                candidate.bind(("127.0.0.1", port))
            except OSError:
                claim.close()
                continue
        claim.detach()  # it stays open
        free.append(port)
        if len(free) == count:
            return free
    raise OSError(f"{len(free)} of {count} ports are free")


def _jar(name: str) -> Path:
    found = sorted((_SPARK / "jars").glob(f"{glob.escape(name)}-[0-9]*.jar"))
    if len(found) != 1:
        raise HdfsUnavailable(f"pyspark has {len(found)} jars named {name} in {_SPARK / 'jars'}")
    return found[0]


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(version: str, folder: Path) -> list[Path]:
    command = [
        str(_SPARK / "bin" / "spark-submit"),
        *("--master", "local"),
        "--packages",
        # Hadoop 3.4 lets its WebHDFS fail without the second, which Java 17 lacks.
        f"org.apache.hadoop:hadoop-client-minicluster:{version},javax.xml.bind:jaxb-api:2.3.1",
        "--exclude-packages",
        "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime,"
        "org.xerial.snappy:snappy-java",
        *("--conf", f"spark.jars.ivy={folder}"),
        # A short process that ends by itself.
        *("--class", "org.apache.hadoop.util.VersionInfo", "spark-internal"),
    ]
    try:
        done = subprocess.run(
            dying_with_parent(command),
            env={**os.environ, "SPARK_HOME": str(_SPARK)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_FETCH_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HdfsUnavailable(f"Hadoop's server classes cannot be fetched: {error}") from error
    jars = list((folder / "jars").glob("*.jar"))
    if done.returncode or not jars:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        last_lines = "\n".join([line for line in lines if not line.startswith("\tat ")][-8:])
        raise HdfsUnavailable(f"Hadoop's server classes cannot be fetched:\n{last_lines}")
    return jars


def _unpack(jars: Iterable[Path], folder: Path) -> None:
    """Write the classes of some jars to one jar of a folder, and their web pages to the folder."""
    folder.mkdir()
    with zipfile.ZipFile(folder / _CLASSES, "w") as classes:
        for jar in jars:
            with zipfile.ZipFile(jar) as archive:
                names = {name for name in archive.namelist() if "META-INF/versions/" not in name}
                pages = {name for name in names if name.startswith("webapps/")}
                archive.extractall(folder, pages)
                for name in sorted(names - pages - set(classes.namelist())):
                    classes.writestr(name, archive.read(name))


def _tail(log: Path, count: int = 40) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join([f"last lines of {log}:", *lines[-count:]])
