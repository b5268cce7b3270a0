"""Who may speak on the channel: the run's certificate and token, and a key for each attempt."""

from __future__ import annotations

import datetime
import hmac
import re
import secrets
from collections.abc import Callable

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

CERTIFICATE_NAME = "experiment-run"
"""In the certificate; the address is not, it may be any."""

_KEY = re.compile(r"[0-9a-f]{32}")


def new_key() -> str:
    """Return a new secret of 128 bits, as 32 hexadecimal digits."""
    return secrets.token_hex(16)


class AttemptKeys:
    """The driver's memory of keys, by which a slot shows that it is itself.

    A slot brings the first key, and gets another with each attempt. That one replaces the one
    before as soon as it is used; until then both count, since the answer that brought it may have
    got lost. So a key speaks for one attempt, and asks for the next one. Not thread safe.

    Args:
        make: Returns a new key.
    """

    def __init__(self, make: Callable[[], str] = new_key) -> None:
        self._make = make
        self._keys: dict[str, tuple[str, str]] = {}  # by slot: the last that was used, the next

    def admits(self, slot: str, key: str) -> bool:
        """Is this a key of the slot? The first one that a slot shows is; constant time."""
        if not _KEY.fullmatch(key):
            return False
        used, following = self._keys.setdefault(slot, (key, self._make()))
        is_used, is_following = hmac.compare_digest(key, used), hmac.compare_digest(key, following)
        if is_following:
            self._keys[slot] = key, self._make()
        return is_used or is_following

    def following(self, slot: str) -> str:
        """Return the key that goes with the next attempt of a slot that has shown one."""
        return self._keys[slot][1]


def make_certificate() -> tuple[bytes, bytes]:
    """Return a new private key and a certificate signed by itself, PEM, valid for a year."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, CERTIFICATE_NAME)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # clocks of executors differ
        .not_valid_after(now + datetime.timedelta(days=365))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(CERTIFICATE_NAME)]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return key_pem, certificate.public_bytes(serialization.Encoding.PEM)
