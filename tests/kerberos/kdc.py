"""A Kerberos of its own on the loopback address: nothing of the system's is read or changed."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from tests.servers.hdfs import dying_with_parent, free_ports

REALM = "EXPERIMENT.TEST"
_PATH = f"{os.environ['PATH']}:/usr/sbin"  # where Debian has the server, and users do not look
_START_SECONDS = 30

_CLIENT = """\
[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
    ticket_lifetime = 1h
    default_ccache_name = FILE:{root}/tickets
[realms]
    {realm} = {{
        kdc = 127.0.0.1:{port}
    }}
[domain_realm]
    localhost = {realm}
    127.0.0.1 = {realm}
"""
_SERVER = """\
[kdcdefaults]
    kdc_listen = 127.0.0.1:{port}
    kdc_tcp_listen = 127.0.0.1:{port}
[realms]
    {realm} = {{
        database_name = {root}/principal
        key_stash_file = {root}/stash
        acl_file = {root}/acl
    }}
[logging]
    kdc = FILE:{root}/kdc.log
"""


class Kdc:
    """A key distribution centre with one realm. A context manager.

    Args:
        root: A folder for all of its files.

    Attributes:
        configuration: The clients' krb5.conf.
        environment: Variables with which MIT's programs and libraries use it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._port = free_ports(1)[0]
        self.configuration = root / "krb5.conf"
        self.environment = {
            "KRB5_CONFIG": str(self.configuration),
            "KRB5_KDC_PROFILE": str(root / "kdc.conf"),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        names = {"realm": REALM, "root": self._root, "port": self._port}
        self.configuration.write_text(_CLIENT.format(**names))
        (self._root / "kdc.conf").write_text(_SERVER.format(**names))
        self.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "of the tests")
        with (self._root / "kdc.out").open("wb") as output:
            self._process = subprocess.Popen(
                dying_with_parent(["krb5kdc", "-n"]),
                env={**os.environ, **self.environment, "PATH": _PATH},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._wait()
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def keytab(self, name: str, *principals: str) -> Path:
        """Make principals, and return a file with their keys."""
        file = self._root / f"{name}.keytab"
        for principal in principals:
            self.run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal)
        self.run("kadmin.local", "-r", REALM, "ktadd", "-k", str(file), *principals)
        return file

    def tickets(self, principal: str, keytab: Path) -> Path:
        """Log a principal in, and return the file with its tickets, for KRB5CCNAME."""
        file = self._root / f"{principal.replace('/', '-')}.tickets"
        self.run("kinit", "-k", "-t", str(keytab), "-c", f"FILE:{file}", principal)
        return file

    def run(self, *command: str) -> str:
        """Run one of MIT's programs; return what it printed.

        Raises:
            RuntimeError: It failed.
        """
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment, "PATH": _PATH},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}")
        return done.stdout

    def _wait(self) -> None:
        end = time.monotonic() + _START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
            except OSError:
                if self._process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError((self._root / "kdc.out").read_text()) from None
                time.sleep(0.05)
            else:
                return
