"""A PostgreSQL of a test's own, on loopback: its files are in a folder that goes with it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

POSTGRES = shutil.which("postgres")
"""The server, where this machine has one."""

USER = "tailrace"


@contextmanager
def postgres() -> Iterator[str]:
    """A running server with an empty database; gives its address as SQLAlchemy takes it."""
    import psycopg2

    assert POSTGRES is not None
    # The server refuses to run as root.
    owner = pwd.getpwnam("postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name)
    # Not in a test's own folder, which belongs to whoever runs the test.
    folder = Path(tempfile.mkdtemp(prefix="tailrace-postgres-"))
    try:
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        user, group, groups = (owner.pw_uid, owner.pw_gid, ()) if os.getuid() == 0 else (None, None, None)
        data, log = folder / "data", folder / "server.log"
        made = ["initdb", "-D", str(data), "--auth=trust", f"--username={USER}", "--no-sync", "--encoding=UTF8"]
        subprocess.run(made, check=True, cwd=folder, capture_output=True, user=user, group=group, extra_groups=groups)
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": str(folder), "fsync": "off"}
        command = [POSTGRES, "-D", str(data), "-p", str(port)]
        command += [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with log.open("wb") as out:
            server = subprocess.Popen(
                command, cwd=folder, stdout=out, stderr=out, user=user, group=group, extra_groups=groups
            )
        try:
            until = time.monotonic() + 60
            while True:
                try:
                    psycopg2.connect(host="127.0.0.1", port=port, user=USER, dbname="postgres").close()
                    break
                except psycopg2.OperationalError:
                    assert server.poll() is None, log.read_text()
                    assert time.monotonic() < until, log.read_text()
                    time.sleep(0.1)
            yield f"postgresql+psycopg2://{USER}@127.0.0.1:{port}/postgres"
        finally:
            # Sessions that are still open are ended.
            server.send_signal(signal.SIGINT)
            server.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
