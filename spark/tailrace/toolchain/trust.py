"""Create a Java trust store with the certificate authorities that Python trusts.

A packaged Java has its own list of authorities and ignores the list of the machine. Without this trust store, Java
could not connect through a proxy with a private certificate authority, although Python and pip can.
"""

from __future__ import annotations

import ssl
import struct
from hashlib import sha1
from pathlib import Path

PASSWORD = "changeit"
_MAGIC, _VERSION, _CERTIFICATE = 0xFEEDFEED, 2, 2


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">H", len(raw)) + raw


def jks(certificates: list[bytes]) -> bytes:
    """Return a Java key store (JKS) as bytes. The key store trusts these certificates, which are in DER form."""
    body = struct.pack(">III", _MAGIC, _VERSION, len(certificates))
    for number, der in enumerate(certificates):
        body += struct.pack(">I", _CERTIFICATE) + _text(f"ca-{number}") + struct.pack(">Q", 0)
        body += _text("X.509") + struct.pack(">I", len(der)) + der
    seal = sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body, usedforsecurity=False)
    return body + seal.digest()


def java_options(folder: Path) -> list[str]:
    """Write a trust store with Python's authorities into `folder`, and return the JVM options that select this store.

    Returns an empty list if Python cannot list its authorities. On some machines, Python can only look up single
    authorities, in a form that Java cannot read.
    """
    authorities = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not authorities:
        return []
    store = folder / "trust.jks"
    store.write_bytes(jks(authorities))
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        f"-Djavax.net.ssl.trustStorePassword={PASSWORD}",
        "-Djavax.net.ssl.trustStoreType=JKS",
    ]
