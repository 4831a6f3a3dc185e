"""`tailrace bundle`: bundle what a cluster and an Airflow need to run a project."""

from __future__ import annotations

import sys
from pathlib import Path

from tailrace.cli.terminal.console import Output
from tailrace.settings import Settings, project_folder


def bundle(
    out: Path | None = None,
    to: str | None = None,
    extra: list[str] | None = None,
    kafka: bool = False,
    postgres: bool = False,
    spark: bool = False,
    python: str | None = None,
    wheel: Path | None = None,
    airflow: str | None = None,
    constraints: Path | None = None,
    workers: bool = True,
) -> None:
    """Bundle what a cluster and an Airflow need to run this project, and upload the bundle to S3.

    The bundle has the wheel of the installed Tailrace, the requirements of an Airflow, an environment and jars for the
    workers, and the project's definitions, contracts, DAGs and dbt project. The project is the folder of tailrace.toml,
    or else this folder. Needs uv, and the extra `spark` for jars that are missing.
    """
    from tailrace.aws.bundle import GROUPS, ClusterBundle
    from tailrace.aws.upload import split_address, upload_bundle

    if to is not None:
        # Report an invalid address before the bundle is built.
        split_address(to)
    output, settings, root = Output(), Settings(), project_folder()
    more = tuple(name for name, wanted in (("kafka", kafka), ("postgres", postgres)) if wanted)
    made = ClusterBundle(
        root,
        settings.jars,
        python or sys.executable,
        tuple(dict.fromkeys(("aws", *more, *(extra or ())))),
        (*GROUPS, *more),
        spark,
        wheel,
        settings.contracts,
        airflow,
        constraints,
        workers,
    )
    place = out or root / "build" / "bundle"
    made.build(place, lambda text: output.verbatim(f"bundle: {text}"))
    output.verbatim(f"bundle: {place}")
    if to is not None:
        sent = upload_bundle(place, to, lambda text: output.verbatim(f"upload: {text}"))
        output.verbatim(f"upload: {len(sent)} files sent to {to}")
