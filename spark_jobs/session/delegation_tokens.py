"""Delegation tokens of a secured HDFS: the driver, which has a Kerberos ticket, renews them.

Executors have no Kerberos ticket; a token replaces it. Spark gives tokens to its executors' JVMs
and to the driver's user, and Hadoop neither issues nor renews a token for a user who presents
another one. So both happen here in a fresh login of the same user without tokens, as in Spark
itself.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

_LOGGER = logging.getLogger("experiment")
_LONGEST_PAUSE = 3600.0  # seconds between two renewals
_GATEWAY_LOGGERS = ("py4j.clientserver", "py4j.java_gateway")
_MISSED = 300.0  # seconds until a token that could not be got is asked for again, by a later search
_RETRY = 30.0  # seconds after a failed renewal, if the token is valid for longer
_FEW_TRIES = {  # a cluster in the configuration may not exist any more
    "dfs.client.failover.max.attempts": "4",
    "ipc.client.connect.max.retries": "1",
    "ipc.client.connect.max.retries.on.timeouts": "1",
    "ipc.client.connect.timeout": "5000",
}


class KnownTokens:
    """The tokens that a driver has; stored with its SparkContext."""

    def __init__(self) -> None:
        self.asked: set[str] = set()
        self.by_authority: dict[str, str] = {}
        self.valid_until = 0.0

    def __repr__(self) -> str:
        return f"KnownTokens({sorted(self.by_authority)})"


class DelegationTokens:
    """Gets and renews tokens through the driver's JVM.

    Args:
        gateway: Py4J's gateway to the JVM.
        configuration: Hadoop's configuration in the JVM.
        principal: Principal of the keytab; '' if the driver has a ticket cache.
        keytab: Keytab file on the driver's host, or ''.
    """

    def __init__(self, gateway: Any, configuration: Any, principal: str, keytab: str) -> None:
        self._gateway = gateway
        self._jvm = gateway.jvm
        self._given = configuration
        self._principal = principal
        self._keytab = keytab
        self._users = self._jvm.org.apache.hadoop.security.UserGroupInformation

    def get(self, authorities: Iterable[str], known: KnownTokens) -> dict[str, str]:
        """Return a token for each file system that issues one; logs a warning for the others.

        Args:
            authorities: Authorities of `hdfs://` file systems: a name service, or host and port.
            known: Tokens to reuse while they are valid; new ones are added.
        """
        if not self._users.isSecurityEnabled():
            return {}
        wanted = list(authorities)
        if time.time() < known.valid_until and set(wanted) == known.asked:
            return dict(known.by_authority)
        tokens, ends = {}, []
        for authority in wanted:
            try:
                user = self._login()
                token = self._issue(authority, user)
                with unlogged():
                    tokens[authority] = str(token.encodeToUrlString())
                ends.append(self._end(token, user))
            except Exception as error:
                _LOGGER.warning(
                    "no delegation token for hdfs://%s, so trials cannot read or write there: %s",
                    authority,
                    _reason(error),
                )
        now = time.time()
        known.asked = set(wanted)
        known.by_authority = tokens
        half = (now + min(ends, default=now)) / 2  # at least this is left when a search starts
        known.valid_until = min(half, now + _MISSED) if len(tokens) < len(wanted) else half
        return dict(tokens)

    @contextlib.contextmanager
    def renewed(self, tokens: Mapping[str, str]) -> Iterator[None]:
        """Renew tokens during the block, in a thread, long before they expire.

        Hadoop renews each up to its maximum lifetime, 7 days unless
        dfs.namenode.delegation.token.max-lifetime sets another. Tokens that the application was
        given, as by `spark-submit --deploy-mode cluster`, are renewed by their issuer.

        Args:
            tokens: Authority to token.
        """
        stop, ended = threading.Event(), threading.Event()

        def renew() -> None:
            try:
                self._renew_until(stop.wait, tokens)
            finally:
                ended.set()

        if tokens and self._may_log_in():
            threading.Thread(target=renew, name="experiment-tokens", daemon=True).start()
        else:
            ended.set()
        try:
            yield
        finally:
            stop.set()
            ended.wait(1)  # no longer, as the NameNode may not answer

    def _renew_until(self, stopped: Callable[[float], bool], tokens: Mapping[str, str]) -> None:
        failing: set[str] = set()
        pause = 0.0
        while not stopped(pause):
            ends = []
            for authority, text in tokens.items():
                try:
                    ends.append(self._renew(self._decoded(text), self._login()))
                    failing.discard(authority)
                except Exception as error:
                    if stopped(0):
                        return
                    if authority not in failing:
                        _LOGGER.warning(
                            "the delegation token of hdfs://%s is not renewed: %s; without that "
                            "trials cannot read or write there for long",
                            authority,
                            _reason(error),
                        )
                    failing.add(authority)
            left = min(ends, default=time.time()) - time.time()
            # After half of the time, so that a few failures in a row do no harm.
            pause = min(max(left / 2, 1.0), _RETRY if failing else _LONGEST_PAUSE)

    def _issue(self, authority: str, user: Any) -> Any:
        files = self._file_system(authority, user)
        if user is None:  # the application's tokens
            name = self._jvm.org.apache.hadoop.io.Text(files.getCanonicalServiceName())
            token = self._users.getCurrentUser().getCredentials().getToken(name)
        else:
            try:
                token = files.getDelegationToken(user.getShortUserName())
            finally:
                files.close()
        if token is None:
            raise LookupError("it issues none")
        return token

    def _file_system(self, authority: str, user: Any) -> Any:
        uri = self._jvm.java.net.URI(f"hdfs://{authority}")
        file_systems = self._jvm.org.apache.hadoop.fs.FileSystem
        if user is None:
            return file_systems.get(uri, self._configuration)
        kind = self._class("org.apache.hadoop.fs.FileSystem")
        signature = self._method_type(
            "(Ljava/net/URI;Lorg/apache/hadoop/conf/Configuration;)"
            "Lorg/apache/hadoop/fs/FileSystem;"
        )
        create = self._lookup.findStatic(kind, "newInstance", signature)
        return self._do_as(user, create, uri, self._configuration)

    def _end(self, token: Any, user: Any) -> float:
        """Return the time until which a new token is valid; now, if unknown."""
        if user is not None:
            with contextlib.suppress(Exception):  # the next try warns
                return self._renew(token, user)
        return time.time()

    def _renew(self, token: Any, user: Any) -> float:
        """Renew a token; return the time until which it is valid, in seconds since 1970."""
        signature = self._method_type("(Lorg/apache/hadoop/conf/Configuration;)J")
        renew = self._lookup.findVirtual(token.getClass(), "renew", signature)
        return float(self._do_as(user, renew, token, self._configuration)) / 1000

    def _decoded(self, text: str) -> Any:
        token = self._jvm.org.apache.hadoop.security.token.Token()
        with unlogged():
            token.decodeFromUrlString(text)
        return token

    def _may_log_in(self) -> bool:
        if self._keytab:
            return True
        somebody_else = self._users.getCurrentUser().getRealUser() is not None  # a proxy user
        return bool(self._users.isLoginTicketBased()) and not somebody_else

    def _login(self) -> Any:
        """Return a fresh login of the driver's user; None without a ticket or keytab."""
        if not self._may_log_in():
            return None
        if self._keytab:
            return self._users.loginUserFromKeytabAndReturnUGI(self._principal, self._keytab)
        return self._users.getUGIFromTicketCache(None, self._users.getCurrentUser().getUserName())

    def _do_as(self, user: Any, method: Any, *arguments: Any) -> Any:
        """Call a method as a user, which needs a Java object with `run`."""
        values = self._gateway.new_array(self._jvm.java.lang.Object, len(arguments))
        for number, argument in enumerate(arguments):
            values[number] = argument
        handle = self._jvm.java.lang.invoke.MethodHandles.insertArguments(method, 0, values)
        action = self._class("java.security.PrivilegedExceptionAction")
        proxies = self._jvm.java.lang.invoke.MethodHandleProxies
        return user.doAs(proxies.asInterfaceInstance(action, handle))

    @functools.cached_property
    def _configuration(self) -> Any:
        copy = self._jvm.org.apache.hadoop.conf.Configuration(self._given)
        for name, value in _FEW_TRIES.items():
            copy.set(name, value)
        return copy

    @property
    def _lookup(self) -> Any:
        return self._jvm.java.lang.invoke.MethodHandles.publicLookup()

    def _method_type(self, signature: str) -> Any:
        loader = self._configuration.getClass().getClassLoader()
        types = self._jvm.java.lang.invoke.MethodType
        return types.fromMethodDescriptorString(signature, loader)

    def _class(self, name: str) -> Any:
        return self._jvm.java.lang.Class.forName(name)


@contextlib.contextmanager
def unlogged() -> Iterator[None]:
    """Keep this thread's messages to and from the JVM out of the log; Py4J logs all of them."""
    thread = threading.get_ident()

    def of_others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    with contextlib.ExitStack() as ending:
        for name in _GATEWAY_LOGGERS:
            logger = logging.getLogger(name)
            logger.addFilter(of_others)
            ending.callback(logger.removeFilter, of_others)
        yield


def _reason(error: Exception) -> str:
    """Return Java's innermost exception in one line; it never has a token's password."""
    java = getattr(error, "java_exception", None)
    while java is not None and java.getCause() is not None:
        java = java.getCause()
    text = str(error) if java is None else str(java.toString())
    return text.split("\n")[0][:300]
