"""An S3 that is neither AWS's nor moto: S3Proxy on loopback, its objects in a folder."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from tailrace.settings import Settings
from tailrace.toolchain import class_path, require_java

READY_SECONDS = 60
JVM = ("-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

PROPERTIES = """\
s3proxy.endpoint=http://127.0.0.1:{port}
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity=test
s3proxy.credential=testtesttest
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir={folder}/objects
jclouds.identity=none
jclouds.credential=none
"""


@contextmanager
def s3proxy(folder: Path) -> Iterator[dict[str, str]]:
    """A running one with a bucket `lake`; gives the environment that takes it for AWS's."""
    settings = Settings()
    (jar,) = class_path(settings.jars, ["s3-server"])
    (folder / "objects").mkdir(parents=True)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    properties = folder / "s3proxy.conf"
    properties.write_text(PROPERTIES.format(port=port, folder=folder))
    told = {
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "testtesttest",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    java = str(require_java(settings.java_home).command)
    with (folder / "s3proxy.log").open("wb") as out:
        server = subprocess.Popen(
            [java, *JVM, "-jar", str(jar), "--properties", str(properties)], stdout=out, stderr=out,
            start_new_session=True,
        )  # fmt: skip
    try:
        s3 = boto3.client(
            "s3", endpoint_url=told["AWS_ENDPOINT_URL_S3"], region_name="us-east-1", aws_access_key_id="test",
            aws_secret_access_key=told["AWS_SECRET_ACCESS_KEY"],
        )  # fmt: skip
        until = time.monotonic() + READY_SECONDS
        while True:
            try:
                s3.create_bucket(Bucket="lake")
                break
            except (BotoCoreError, ClientError):
                assert server.poll() is None, (folder / "s3proxy.log").read_text()
                assert time.monotonic() < until, (folder / "s3proxy.log").read_text()
                time.sleep(0.2)
        yield told
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
