"""The machine checks of `tailrace doctor`: Java, pinned jars, packages, Kafka brokers and the schema registry.

None of these checks starts Spark.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from packaging.requirements import Requirement

from tailrace.doctor.findings import Finding, UnseenError, fault, run_check
from tailrace.ingest.kafka_access import KafkaAccess, NoAnswerError
from tailrace.lake.catalog.backends import jar_groups as groups_of
from tailrace.settings import Settings
from tailrace.toolchain import missing_jars, pinned_jars, require_java
from tailrace.toolchain.extras import extra_of, extras

PACKAGES = ("duckdb", "numpy", "pyiceberg", "sqlalchemy", "pyspark", "apache-airflow", "dbt-core", "dbt-spark", "boto3")
"""The packages whose installed versions are compared with the versions that the project pins."""

PATIENCE = 2.0
"""The maximum time to wait for a connection to a broker, in seconds."""

ANSWER = 10.0
"""The maximum time to wait for the brokers' answer, in seconds."""

_SILENT = logging.getLogger("tailrace.doctor.brokers")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def check_installation(settings: Settings, *, elsewhere: bool = False) -> Iterator[Finding]:
    """Check Java, the jars for this lake, and the packages.

    If `elsewhere` is true, runs take place on another machine, so only the packages are checked.
    """
    if elsewhere:
        why = "runs are the application's, which brings its own"
        yield from (Finding(name, "not looked at", why) for name in ("java", "jars"))
    else:
        yield run_check("java", lambda: _java(settings))
        yield run_check("jars", lambda: _jars(settings))
    for name in PACKAGES:
        yield run_check(name, partial(check_package, name))


def check_brokers(settings: Settings) -> str:
    """Check that each Kafka broker accepts a connection, and that the brokers accept a client with these settings.

    Raises `WrongError` if they do not, and `UnseenError` if no brokers are set.
    """
    if settings.kafka_bootstrap is None:
        raise UnseenError("TAILRACE_KAFKA_BOOTSTRAP is not set", "")
    deaf = []
    for broker in settings.kafka_bootstrap.split(","):
        host, _, port = broker.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
        except (OSError, OverflowError) as error:
            deaf.append(f"{broker} ({error})")
    if deaf:
        raise fault("silent-brokers", brokers=", ".join(deaf))
    return _answer(settings, KafkaAccess.of(settings))


def _answer(settings: Settings, access: KafkaAccess) -> str:
    """Ask the brokers for their topics as the client that the settings describe.

    Raises `WrongError` if the brokers do not answer this client.
    """
    brokers = settings.kafka_bootstrap
    try:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
    except ImportError:
        return f"{brokers} can be reached (asked nothing: that needs the extra `kafka`)"
    if access.security == "iam":
        return f"{brokers} can be reached (asked nothing: only Java's client signs in with IAM)"
    failures: list[Any] = []
    options: dict[str, Any] = {
        "bootstrap.servers": brokers,
        "logger": _SILENT,
        "error_cb": failures.append,
        **access.librdkafka,
    }
    try:
        topics = access.listed(AdminClient(options), failures, ANSWER)
    except (KafkaException, NoAnswerError) as error:
        why = str(error) if isinstance(error, NoAnswerError) else access.hide(error.args[0].str())
        raise fault("refusing-brokers", brokers=brokers, security=access.security, why=why) from None
    return f"{brokers} answers a client with {access.security}: {len(topics):,} topics"


def check_schema_registry(settings: Settings) -> str:
    """Check that the schema registry answers and allows reading.

    Raises `RegistryError` if the registry does not answer or refuses access. Raises `UnseenError` if no registry is
    set, or if a package that reads the registry is not installed.
    """
    if settings.schema_registry_uri is None:
        raise UnseenError("TAILRACE_SCHEMA_REGISTRY_URI is not set", "")
    try:
        from tailrace.ingest.framed.schema_registry import SchemaRegistry
    except ImportError as error:
        raise UnseenError(f"package {error.name} is not installed", _advice(error.name)) from None
    subjects = SchemaRegistry(settings).subjects()
    return f"{settings.schema_registry_uri} answers: {len(subjects):,} subjects"


def _advice(module: str | None) -> str:
    extra = extra_of(module or "")
    return "install tailrace again" if extra is None else extra.command


def _java(settings: Settings) -> str:
    java = require_java(settings.java_home)
    return f"Java {java.release} in {java.home}"


def _jars(settings: Settings) -> str:
    groups = (*groups_of(settings), *(("kafka",) if settings.kafka_bootstrap else ()))
    lacking = missing_jars(settings.jars, groups)
    if lacking:
        flags = "".join(f" --group {group}" for group in dict.fromkeys(jar.group for jar in lacking))
        jars = ", ".join(jar.file for jar in lacking)
        raise fault("missing-jars", folder=settings.jars, jars=jars, flags=flags)
    count = sum(len(pinned_jars(group)) for group in groups)
    return f"{count} jars of {', '.join(groups)} in {settings.jars}, as pinned"


def _requirements() -> list[tuple[Requirement, str | None]]:
    """List the requirements of `tailrace`: each requirement, and the extra to which it belongs (if any).

    The list is empty if `tailrace` is not installed as a package.
    """
    try:
        asked = requires("tailrace") or []
    except PackageNotFoundError:
        return []
    named = [(Requirement(text), re.search(r"""extra == ['"]([\w-]+)['"]""", text)) for text in asked]
    return [(requirement, None if extra is None else extra[1]) for requirement, extra in named]


def check_package(name: str) -> str:
    """Check that a package has a version that Tailrace allows, and return a text with the version.

    Raises `UnseenError` if the package is of an extra that is not installed.
    """
    asked = [one for one in _requirements() if one[0].name.lower() == name]
    try:
        present = version(name)
    except PackageNotFoundError:
        extra = next((extra for _, extra in asked if extra), None)
        if extra is None:
            raise fault("missing-package", package=name) from None
        raise UnseenError("not installed", f"{extras()[extra].command}, where it is needed") from None
    wanted = next((requirement.specifier for requirement, _ in asked if requirement.specifier), None)
    if wanted is None and asked:
        return present
    if wanted is None:
        raise UnseenError(f"{present}; tailrace is not installed, which would say what it pins", "install tailrace")
    if present not in wanted:
        raise fault("other-package", version=present, wanted=wanted, package=name)
    return f"{present}, as pinned" if str(wanted).startswith("==") else f"{present}, within {wanted}"
