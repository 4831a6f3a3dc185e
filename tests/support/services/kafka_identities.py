"""The identities of a test's broker and of its clients: certificates, users, and a server that issues tokens."""

from __future__ import annotations

import base64
import ipaddress
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

USER = "alice"
PASSWORD = "p\"a\\s;s:w=o r'd-8c1f"
"""A password with each character that a text of JAAS has to escape."""
CLIENT, CLIENT_SECRET = "tailrace", 'c"lient-secret\\-77b2'
AUDIENCE = "kafka-of-tests"


@dataclass(frozen=True)
class Identities:
    """The files of the authority, the broker (`broker.pem`) and a client (`client.pem`, `client.key`), in a folder."""

    folder: Path

    def make(self) -> None:
        """Write the files."""
        self.folder.mkdir(parents=True, exist_ok=True)
        ca_key, ca = self._signed("authority", None, None)
        self._write("ca.pem", ca.public_bytes(serialization.Encoding.PEM))
        for name in ("broker", "client"):
            key, certificate = self._signed(name, ca_key, ca)
            text = key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            pem = certificate.public_bytes(serialization.Encoding.PEM)
            self._write(f"{name}.key", text)
            self._write(f"{name}.pem", pem + text if name == "broker" else pem)
        numbers = self.token_key.public_key().public_numbers()
        jwk = {
            "kty": "RSA",
            "kid": "one",
            "alg": "RS256",
            "use": "sig",
            "n": _number(numbers.n),
            "e": _number(numbers.e),
        }
        self._write("jwks.json", json.dumps({"keys": [jwk]}).encode())

    @cached_property
    def token_key(self) -> rsa.RSAPrivateKey:
        return rsa.generate_private_key(65537, 2048)

    def token(self) -> str:
        """A token that the broker accepts for an hour."""
        now = int(time.time())
        claims = {"sub": CLIENT, "scope": "read", "iat": now, "exp": now + 3600, "aud": AUDIENCE, "iss": "tests"}
        parts = [_encoded(json.dumps(one).encode()) for one in ({"alg": "RS256", "kid": "one", "typ": "JWT"}, claims)]
        signature = self.token_key.sign(".".join(parts).encode(), padding.PKCS1v15(), hashes.SHA256())
        return ".".join([*parts, _encoded(signature)])

    @contextmanager
    def token_server(self) -> Iterator[str]:
        """A server that gives the client its token; its address."""
        identities = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                scheme, _, text = self.headers.get("Authorization", "").partition(" ")
                known = scheme == "Basic" and base64.b64decode(text).decode() == f"{CLIENT}:{CLIENT_SECRET}"
                good = known and form["grant_type"] == ["client_credentials"]
                answer = {"access_token": identities.token(), "token_type": "Bearer", "expires_in": 3600}
                body = json.dumps(answer if good else {"error": "invalid_client"}).encode()
                self.send_response(200 if good else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None: ...

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield f"http://127.0.0.1:{server.server_port}/token"
            finally:
                server.shutdown()

    def _write(self, name: str, content: bytes) -> None:
        (self.folder / name).write_bytes(content)

    def _signed(
        self, name: str, issuer_key: rsa.RSAPrivateKey | None, issuer: x509.Certificate | None
    ) -> tuple[rsa.RSAPrivateKey, x509.Certificate]:
        key, now = rsa.generate_private_key(65537, 2048), datetime.now(UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} of tests")])
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if issuer is None else issuer.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        )
        if issuer is not None:
            address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
            builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        return key, builder.sign(issuer_key or key, hashes.SHA256())


def _number(value: int) -> str:
    return _encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
