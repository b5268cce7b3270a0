"""An HDFS that answers over HTTPS only, with certificates of an authority of its own."""

from __future__ import annotations

import contextlib
import datetime
import getpass
import ipaddress
import json
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from xml.sax.saxutils import escape

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from spark_jobs.storage.files import FileStatus
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.storage.webhdfs import WebHdfs
from tests import clock
from tests.servers.hdfs import Hdfs, HdfsUnavailable, server_classes

PASSWORD = "of the tests"


def certificate(name, issuer=None, address=None):
    """Return a certificate and its key; without an issuer, self-signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    signer, signing_key = issuer or (None, key)
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if signer is None else signer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()),
            critical=False,
        )
    )
    if signer is None:
        others = ["digital_signature", "content_commitment", "key_encipherment", "crl_sign"]
        others += ["data_encipherment", "key_agreement", "encipher_only", "decipher_only"]
        usage = dict.fromkeys(others, False)
        builder = builder.add_extension(x509.KeyUsage(key_cert_sign=True, **usage), critical=True)
    if address is not None:
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(signing_key, hashes.SHA256()), key


def store(certificate, key, authority):
    """Return a PKCS12 store, which is what Java reads."""
    return pkcs12.serialize_key_and_certificates(
        b"server",
        key,
        certificate,
        [authority],
        serialization.BestAvailableEncryption(PASSWORD.encode()),
    )


@pytest.fixture(scope="module")
def https_hdfs(tmp_path_factory):
    """The HDFS, and the file with the certificate of its servers' authority."""
    try:
        server_classes()
    except HdfsUnavailable as error:
        pytest.skip(f"no HDFS: {error}")
    root = tmp_path_factory.mktemp("https")
    authority = certificate("authority of the tests")
    server, key = certificate("server of the tests", authority, "127.0.0.1")
    (root / "server.p12").write_bytes(store(server, key, authority[0]))
    trusted = root / "authority.pem"
    trusted.write_bytes(authority[0].public_bytes(serialization.Encoding.PEM))
    names = {"location": str(root / "server.p12"), "password": PASSWORD, "type": "PKCS12"}
    settings = {f"ssl.server.keystore.{name}": value for name, value in names.items()}
    settings |= {f"ssl.server.truststore.{name}": value for name, value in names.items()}
    settings["ssl.server.keystore.keypassword"] = PASSWORD
    entries = "".join(
        f"<property><name>{name}</name><value>{escape(value)}</value></property>"
        for name, value in settings.items()
    )
    (root / "ssl-server.xml").write_text(f"<configuration>{entries}</configuration>")
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(trusted))),
    )
    with Hdfs(root, 1, properties={"dfs.http.policy": "HTTPS_ONLY"}, opener=opener) as hdfs:
        yield hdfs, trusted


def connect(hdfs, patience=60.0):
    values = {**hdfs.settings(), "dfs.http.policy": "HTTPS_ONLY"}
    root = Location.parse(hdfs.uri + "/")
    return WebHdfs(root, HadoopSettings(values, getpass.getuser()), patience), root


def test_files_are_written_and_read_over_https(https_hdfs, monkeypatch, tmp_path):
    hdfs, trusted = https_hdfs
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(trusted))
    (tmp_path / "source").write_bytes(b"over https")
    files, root = connect(hdfs)
    files.write(root.at("/a"), tmp_path / "source")
    found: list[bytes] = []
    files.read(files.status(root.at("/a")), found.append)
    files.close()
    assert hdfs.http.startswith("https://")
    assert b"".join(found) == b"over https"


def test_an_untrusted_certificate_is_an_error_at_once(https_hdfs, monkeypatch):
    hdfs, _ = https_hdfs
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    files, root = connect(hdfs, patience=3600.0)  # no such error is tried again
    with pytest.raises(OSError) as caught:
        files.status(root.at("/a"))
    files.close()
    message = str(caught.value)
    assert "\n" not in message
    server = hdfs.http.removeprefix("https://")
    assert message.startswith(f"{hdfs.uri}/a: the certificate of {server} is not trusted (")
    assert "self-signed certificate in certificate chain" in message
    assert "set REQUESTS_CA_BUNDLE, on executors too, to a file" in message


ASK = """
import json, sys
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.storage.webhdfs import WebHdfs

location, values = json.load(sys.stdin)
WebHdfs(Location.parse(location), HadoopSettings(values)).status(Location.parse(location))
"""


@pytest.mark.parametrize(("days", "trouble"), [(-3, "is not yet valid"), (3, "has expired")])
def test_a_wrong_clock_is_an_error_that_shows_its_time(https_hdfs, days, trouble):
    hdfs, trusted = https_hdfs
    values = {**hdfs.settings(), "dfs.http.policy": "HTTPS_ONLY"}
    off = datetime.timedelta(days=days)
    before = datetime.datetime.now(datetime.UTC) + off
    asked = subprocess.run(
        [sys.executable, "-c", ASK],
        input=json.dumps([f"{hdfs.uri}/a", values]),
        env={**clock.environment(days), "REQUESTS_CA_BUNDLE": str(trusted)},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    message = asked.stderr.strip().splitlines()[-1]
    assert f"certificate {trouble}" in message
    after = datetime.datetime.now(datetime.UTC) + off
    said = [f"; the clock of this host says {there:%Y-%m-%d}" for there in (before, after)]
    assert any(words in message for words in said), message
    assert message.endswith(" UTC; is it right?")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_an_answer_without_https_is_no_bad_certificate(answer):
    asked: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_all():
            with contextlib.suppress(OSError):
                while True:
                    with server.accept()[0] as connection:
                        asked.append(connection)
                        connection.recv(1_000)
                        connection.sendall(answer)

        thread = threading.Thread(target=answer_all)
        thread.start()
        location = Location.parse(f"swebhdfs://127.0.0.1:{server.getsockname()[1]}/a")
        files = WebHdfs(location, HadoopSettings(), patience=0.5)
        with pytest.raises(OSError, match=r"no WebHDFS at https://.*; is the address right"):
            files.status(location)
        files.close()
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert (len(asked) > 1) == (answer == b"")  # who hangs up may be better soon


def test_a_terminated_datanode_is_no_bad_certificate(https_hdfs, monkeypatch, tmp_path):
    hdfs, trusted = https_hdfs
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(trusted))
    with (tmp_path / "source").open("wb") as source:
        source.truncate(40 << 20)
    files, root = connect(hdfs)
    files.write(root.at("/large"), tmp_path / "source")
    status: FileStatus = files.status(root.at("/large"))
    reached = 0

    def sink(data):
        nonlocal reached
        if reached == 0:
            hdfs.kill("datanode0")
            hdfs.start_datanode(0)
        reached += len(data)

    files.read(status, sink)
    files.close()
    assert reached == status.length
