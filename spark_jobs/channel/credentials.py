"""Authentication of the channel: the run's certificate and token, and a key for each attempt.

Messages through a mailbox are sealed with a key of the run.
"""

from __future__ import annotations

import datetime
import hmac
import re
import secrets
from collections.abc import Callable

from cryptography import x509
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.x509.oid import NameOID

from search.errors import ExperimentError

CERTIFICATE_NAME = "experiment-run"
"""The name in the certificate, which has no address, as that may be any."""

# All times that a certificate can hold: an executor's clock may be years off. A run is protected by
# a private key that is made for it and removed with it.
_VALID_FROM = datetime.datetime(1970, 1, 1)
_VALID_TO = datetime.datetime(
    9999, 12, 31, hour=23, minute=59, second=59
)  # RFC 5280's word for no end

_NONCE = 12  # bytes
_TAG = 16  # bytes
_KEY = re.compile(r"[0-9a-f]{32}")


def new_key() -> str:
    """Return a new secret of 128 bits, as 32 hexadecimal digits."""
    return secrets.token_hex(16)


class AttemptKeys:
    """The driver's list of keys, by which slots authenticate.

    A slot chooses the first key, and gets a new one with each attempt, which replaces the one
    before when it is used. Until then both are valid, since the answer with the new key may be
    lost. So a key is valid for one attempt and the request for the next one. Not thread safe.

    Args:
        make: Returns a new key.
    """

    def __init__(self, make: Callable[[], str] = new_key) -> None:
        self._make = make
        self._keys: dict[str, tuple[str, str]] = {}  # by slot: the last used key, the next one

    def admits(self, slot: str, key: str) -> bool:
        """Return whether this is a key of the slot, in constant time; the first one is accepted."""
        if not _KEY.fullmatch(key):
            return False
        used, following = self._keys.setdefault(slot, (key, self._make()))
        is_used, is_following = hmac.compare_digest(key, used), hmac.compare_digest(key, following)
        if is_following:
            self._keys[slot] = key, self._make()
        return is_used or is_following

    def following(self, slot: str) -> str:
        """Return the key for the next attempt of a slot that has a key."""
        return self._keys[slot][1]


class SealBroken(ExperimentError):
    """Bytes that were not sealed with this key under this name, or were changed since."""


class Seal:
    """Encrypts data on shared storage, so that others can neither read it nor change it unnoticed.

    AES-256-GCM (NIST SP 800-38D), each time with a nonce of its own. Thread safe.

    Args:
        key: A key from `Seal.new_key`.
    """

    OVERHEAD = _NONCE + _TAG
    """Bytes that sealing adds."""

    def __init__(self, key: str) -> None:
        self._cipher = AESGCM(bytes.fromhex(key))

    @staticmethod
    def new_key() -> str:
        """Return a new secret of 256 bits, as 64 hexadecimal digits."""
        return secrets.token_hex(32)

    def close(self, data: bytes, name: str) -> bytes:
        """Return data encrypted, and bound to a name."""
        nonce = secrets.token_bytes(_NONCE)
        return nonce + self._cipher.encrypt(nonce, data, name.encode())

    def open(self, sealed: bytes, name: str) -> bytes:
        """Return the data that was sealed under a name.

        Raises:
            SealBroken: It was not sealed so, or with another key.
        """
        if len(sealed) < self.OVERHEAD:
            raise SealBroken(f"{len(sealed)} bytes, fewer than {self.OVERHEAD}")
        try:
            return self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], name.encode())
        except InvalidTag:
            raise SealBroken(f"not sealed as {name!r} with the key of this run") from None


def make_certificate() -> tuple[bytes, bytes]:
    """Return a new private key and a certificate signed by itself, PEM, valid at any time."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, CERTIFICATE_NAME)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_VALID_FROM)
        .not_valid_after(_VALID_TO)
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
