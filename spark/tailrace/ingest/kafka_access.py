"""Translate the settings for Kafka to the settings of its two clients: Java's, which Spark uses, and librdkafka.

The contents of PEM files are passed to Java's clients, not the paths: so Spark's executors need no files. The texts
with secrets (JAAS) are written here alone.
"""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from tailrace.model.base.errors import Fault, TailraceError
from tailrace.settings import PREFIX, Settings, SettingsError, variable

_CLIENTS: Mapping[str, Any] = tomllib.loads(resources.files(__package__).joinpath("kafka_security.toml").read_text())

_BOTH = frozenset({
    "client.dns.lookup", "client.id", "client.rack", "connections.max.idle.ms", "fetch.min.bytes", "fetch.max.bytes",
    "max.partition.fetch.bytes", "metadata.max.age.ms", "reconnect.backoff.ms", "reconnect.backoff.max.ms",
    "retry.backoff.ms", "retry.backoff.max.ms", "session.timeout.ms", "ssl.endpoint.identification.algorithm",
})  # fmt: skip
"""The consumer settings that Java's client and librdkafka both have, with the same meaning."""

_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)


class NoAnswerError(TailraceError, ConnectionError):
    """The error for brokers that do not answer a client, or turn it away. The message is the reason."""


@dataclass(frozen=True)
class KafkaAccess:
    """How clients connect to brokers: their settings for security, and further options. Secrets are not in its `repr`.

    `java` is for Java's clients, and `librdkafka` for clients of librdkafka. `secrets` are the texts that no message
    may show.
    """

    security: str = "plaintext"
    java: Mapping[str, str] = field(default_factory=dict, repr=False)
    librdkafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, settings: Settings) -> KafkaAccess:
        """Translate the settings. Raises `SettingsError` with all faults if a PEM file cannot be used."""
        files = _PemFiles(settings)
        if files.faults:
            raise SettingsError(files.faults)
        security, clients = settings.kafka_security, _CLIENTS[settings.kafka_security]
        encrypted = security != "plaintext" and settings.kafka_tls
        protocol = ("SASL_" if security not in ("plaintext", "tls") else "") + ("SSL" if encrypted else "PLAINTEXT")
        java = {"security.protocol": protocol, **clients["java"], **files.java}
        librdkafka = {"security.protocol": protocol, **clients.get("librdkafka", {}), **files.librdkafka}
        secrets = [*files.secrets]
        if settings.kafka_credential is not None:
            user, _, password = settings.kafka_credential.get_secret_value().partition(":")
            values = dict(zip(clients["names"], (user, password), strict=True))
            secrets.append(password)
            if security == "oauthbearer":
                librdkafka |= {"sasl.oauthbearer.client.id": user, "sasl.oauthbearer.client.secret": password}
            else:
                librdkafka |= {"sasl.username": user, "sasl.password": password}
            if settings.kafka_scope:
                values["scope"] = librdkafka["sasl.oauthbearer.scope"] = settings.kafka_scope
            values |= {f"extension_{name}": value for name, value in settings.kafka_extensions.items()}
            if settings.kafka_extensions:
                pairs = (f"{name}={value}" for name, value in settings.kafka_extensions.items())
                librdkafka["sasl.oauthbearer.extensions"] = ",".join(pairs)
            java["sasl.jaas.config"] = jaas(clients["login"], values)
        if settings.kafka_token_uri:
            java["sasl.oauthbearer.token.endpoint.url"] = settings.kafka_token_uri
            librdkafka["sasl.oauthbearer.token.endpoint.url"] = settings.kafka_token_uri
        java |= settings.kafka_options
        librdkafka |= {name: value for name, value in settings.kafka_options.items() if name in _BOTH}
        if librdkafka.get("ssl.endpoint.identification.algorithm") == "":
            librdkafka["ssl.endpoint.identification.algorithm"] = "none"
        return cls(security, java, librdkafka, tuple(filter(None, secrets)))

    @property
    def spark(self) -> dict[str, str]:
        """The options of Spark's Kafka source."""
        return {f"kafka.{name}": value for name, value in self.java.items()}

    def listed(self, client: Any, failures: list[Any], patience: float, topic: str | None = None) -> Any:
        """Ask brokers for their topics, or for one topic, through a client of librdkafka.

        `failures` is the list to which the client's `error_cb` appends. If the brokers turn the client away, asking
        stops at once. Raises `NoAnswerError` with the reason if there is no answer.
        """
        from confluent_kafka import KafkaError, KafkaException

        final, until = (KafkaError._AUTHENTICATION, KafkaError._SSL), time.monotonic() + patience
        while True:
            try:
                return client.list_topics(*([] if topic is None else [topic]), timeout=min(patience, 0.5)).topics
            except KafkaException as error:
                client.poll(0)
                refusal = next((one for one in failures if one.code() in final), None)
                if refusal is not None or time.monotonic() > until:
                    # The first failure names the cause. The exception is often only a time-out.
                    cause = refusal or (failures or [error.args[0]])[0]
                    raise NoAnswerError(self.hide(cause.str())) from None

    def hide(self, text: str) -> str:
        """Replace secrets in a text, such as the message of an error."""
        for secret in self.secrets:
            for shown in (secret, quoted_in_jaas(secret)):
                text = text.replace(shown, "(not shown)")
        return text


PLAINTEXT = KafkaAccess()
"""No security, as with a broker on this machine."""


def jaas(module: str, values: Mapping[str, str]) -> str:
    """Write the configuration of a login module.

    >>> jaas("PlainLoginModule", {"username": "me", "password": 'a"b'})
    'PlainLoginModule required username="me" password="a\\\\"b";'
    """
    return " ".join([module, "required", *(f'{name}="{quoted_in_jaas(text)}"' for name, text in values.items())]) + ";"


def quoted_in_jaas(text: str) -> str:
    """Escape the characters that end a text in quotes, or that begin an escape, for the parser of Java's clients."""
    # The parser is Java's StreamTokenizer. It knows octal escapes, whose three digits end at the next character.

    def escaped(found: re.Match[str]) -> str:
        return f"\\{ord(found[0]):03o}" if found[0] < " " else f"\\{found[0]}"

    return re.sub(r'[\\"\x00-\x1f]', escaped, text)


class _PemFiles:
    """The contents of the PEM files that the settings name, and what is wrong with them."""

    def __init__(self, settings: Settings) -> None:
        self.faults: list[Fault] = []
        self.java: dict[str, str] = {}
        self.librdkafka: dict[str, str] = {}
        self.secrets: list[str] = []
        if settings.kafka_ca is not None:
            authorities = self._blocks("kafka_ca", settings.kafka_ca, "CERTIFICATE")
            self.java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "\n".join(authorities)}
            self.librdkafka["ssl.ca.pem"] = "\n".join(authorities)
        if settings.kafka_certificate is not None:
            self._identity(settings, settings.kafka_certificate)

    def _identity(self, settings: Settings, certificate: Path) -> None:
        chain = "\n".join(self._blocks("kafka_certificate", certificate, "CERTIFICATE"))
        named, place = ("kafka_key", settings.kafka_key) if settings.kafka_key else ("kafka_certificate", certificate)
        password = settings.kafka_key_password
        kind = "PRIVATE KEY" if password is None else "ENCRYPTED PRIVATE KEY"
        key = "\n".join(self._blocks(named, place, kind)[:1])
        self.java |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
        self.librdkafka |= {"ssl.certificate.pem": chain, "ssl.key.pem": key}
        self.secrets.append(key)
        if password is not None:
            text = password.get_secret_value()
            self.java["ssl.key.password"] = self.librdkafka["ssl.key.password"] = text
            self.secrets.append(text)

    def _blocks(self, name: str, place: Path, kind: str) -> list[str]:
        """Return the blocks of one kind in a PEM file. What is wrong is added to the faults."""
        try:
            text = place.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            self._fault(name, place, f"a PEM file ({reason})", f"set {variable(name)} to one")
            return []
        blocks = [(found[1], found[0]) for found in _PEM.finditer(text)]
        if not (wanted := [block for label, block in blocks if label == kind]):
            labels = ", ".join(dict.fromkeys(label for label, _ in blocks)) or "none"
            expected = f"a PEM file with a block {kind} (its blocks: {labels})"
            self._fault(name, place, expected, _mend(kind, labels))
        return wanted

    def _fault(self, name: str, place: Path, expected: str, remedy: str) -> None:
        self.faults.append(Fault(name, str(place), expected, remedy))


def _mend(kind: str, labels: str) -> str:
    if kind == "CERTIFICATE":
        return "of a JKS store, make it by: keytool -exportcert -rfc -keystore STORE -alias NAME"
    if kind == "PRIVATE KEY" and "ENCRYPTED PRIVATE KEY" in labels:
        return f"set {PREFIX}KAFKA_KEY_PASSWORD or {PREFIX}KAFKA_KEY_PASSWORD_FILE"
    encrypted = "-nocrypt" if kind == "PRIVATE KEY" else "-v1 PBE-SHA1-3DES"
    return f"make it by: openssl pkcs8 -topk8 {encrypted} -in KEY -out KEY.pem"
