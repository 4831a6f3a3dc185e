"""The bundle of a project: what is in it, that it runs by itself elsewhere, and what an upload sends."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import PathDistribution
from pathlib import Path

import boto3
import pytest

import tailrace
from tailrace.aws import upload, wheel
from tailrace.aws.bundle import ClusterBundle, conf, write_archive, write_manifest
from tailrace.aws.objects import AwsError
from tailrace.aws.pins import Project, prefer
from tailrace.aws.upload import MANIFEST, upload_bundle
from tailrace.aws.wheel import copy_wheel, make_wheel
from tailrace.cli.commands.change.bundle import bundle as bundle_command
from tailrace.lake.catalog.lake import Lake
from tailrace.settings import Settings
from tailrace.toolchain import quiet_home, require_java
from tailrace.toolchain.jars import sha256_of
from tests.support.depth import deep
from tests.support.services.aws import aws

ROOT = Path(__file__).parents[2]
BUCKET = "bundles-of-a-test"
TO = f"s3://{BUCKET}/tailrace"

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def quiet(text: str) -> None:
    """Tell nobody."""


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty bucket."""
    with aws() as cloud:
        for name, value in cloud.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
        boto3.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": cloud.region})
        yield


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A bundle of three files, one of them longer than what S3 is sent in one part."""
    folder = tmp_path / "bundle"
    (folder / "jobs").mkdir(parents=True)
    (folder / "jobs" / "stream.py").write_text("print('stream')\n")
    (folder / "jobs" / "backfill.py").write_text("print('backfill')\n")
    (folder / "environment.tar.gz").write_bytes(os.urandom(9_000_000))
    write_manifest(folder, {"version": "1"})
    return folder


def there() -> dict[str, int]:
    """The objects of the bucket by their keys, and how many bytes each has."""
    found = boto3.client("s3").list_objects_v2(Bucket=BUCKET).get("Contents", [])
    return {one["Key"].removeprefix("tailrace/"): one["Size"] for one in found}


@pytest.mark.usefixtures("s3")
def test_an_upload_sends_everything_once_and_the_manifest_last(small: Path) -> None:
    sent = upload_bundle(small, TO, quiet)
    assert sent == ["environment.tar.gz", "jobs/backfill.py", "jobs/stream.py", MANIFEST]
    assert there() == {path: (small / path).stat().st_size for path in sent}
    asked = {"Bucket": BUCKET, "ChecksumMode": "ENABLED"}
    for path in sent:
        held = boto3.client("s3").head_object(Key=f"tailrace/{path}", **asked)
        assert held["Metadata"] == {"sha256": sha256_of(small / path)}
        assert held["ChecksumSHA256"], "S3 has compared what it got"
    assert upload_bundle(small, TO, quiet) == []


@pytest.mark.usefixtures("s3")
def test_an_upload_sends_what_has_changed(small: Path) -> None:
    upload_bundle(small, TO, quiet)
    (small / "jobs" / "stream.py").write_text("print('another')\n")
    write_manifest(small, {"version": "1"})
    assert upload_bundle(small, TO, quiet) == ["jobs/stream.py", MANIFEST]
    write_manifest(small, {"version": "2"})
    assert upload_bundle(small, TO, quiet) == [MANIFEST]


@pytest.mark.usefixtures("s3")
def test_half_an_upload_has_no_manifest_and_goes_on_where_it_was(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upload_bundle(small, TO, quiet)
    for name in ("backfill", "stream"):
        (small / "jobs" / f"{name}.py").write_text("print('another')\n")
    write_manifest(small, {"version": "2"})
    put = upload._Place.put

    def cut_off(self: upload._Place, file: Path, path: str, digest: str) -> None:
        if path == "jobs/stream.py":
            raise AwsError("the line went dead")
        put(self, file, path, digest)

    with monkeypatch.context() as patched:
        patched.setattr(upload._Place, "put", cut_off)
        with pytest.raises(AwsError, match="the line went dead"):
            upload_bundle(small, TO, quiet)
    assert MANIFEST not in there(), "nobody takes it for a whole one"
    assert upload_bundle(small, TO, quiet) == ["jobs/stream.py", MANIFEST]


def test_a_bundle_that_has_changed_since_it_was_built_is_not_uploaded(small: Path) -> None:
    (small / "jobs" / "stream.py").write_text("print('by hand')\n")
    with pytest.raises(AwsError, match=r"has changed since its manifest was written \(jobs/stream.py\)"):
        upload_bundle(small, TO, quiet)
    (small / MANIFEST).unlink()
    with pytest.raises(AwsError, match=r"has no manifest.json that can be read: build the bundle again"):
        upload_bundle(small, TO, quiet)


@pytest.mark.usefixtures("s3")
def test_a_bucket_that_is_not_there_is_said(small: Path) -> None:
    with pytest.raises(AwsError, match="NoSuchBucket"):
        upload_bundle(small, "s3://no-such-bucket", quiet)


def test_a_wrong_address_is_said_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(AwsError, match=r"--to 'my-bucket/tailrace': expected an address such as s3://my-bucket/tailr"):
        bundle_command(to="my-bucket/tailrace", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(AwsError, match="holds something that is no bundle"):
        ClusterBundle(ROOT, tmp_path).build(tmp_path, quiet)
    assert (tmp_path / "mine").read_text() == "precious"
    with pytest.raises(AwsError, match=r"has no folder pipelines/ with definitions: run the command in a project"):
        ClusterBundle(tmp_path, tmp_path)


def test_a_build_that_fails_leaves_the_bundle_that_is_there(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "project"
    (root / "pipelines").mkdir(parents=True)
    before = (small / MANIFEST).read_text()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(AwsError, match="uv is not there, which resolves and installs what the bundle needs: `pip inst"):
        ClusterBundle(root, tmp_path).build(small, quiet)
    (root / "build" / "uv" / "bin").mkdir(parents=True)
    uv = root / "build" / "uv" / "bin" / "uv"
    uv.write_text("#!/bin/sh\necho 'no such extra' >&2\nexit 2\n")
    uv.chmod(0o755)
    with pytest.raises(AwsError, match="no such extra"):
        ClusterBundle(root, tmp_path).build(small, quiet)
    assert (small / MANIFEST).read_text() == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".bundle-")] == []


METADATA = """Metadata-Version: 2.4
Name: tailrace
Version: 7.1
Requires-Dist: numpy>=1.26
Provides-Extra: airflow
Requires-Dist: apache-airflow<4,>=3.1; extra == 'airflow'
Requires-Dist: rfc3339-validator; extra == 'airflow'
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages, into which an installer put a wheel of two files."""
    packages, about = tmp_path / "packages", tmp_path / "packages" / "tailrace-7.1.dist-info"
    texts = {
        packages / "tailrace" / "__init__.py": "x = 1\n", about / "METADATA": METADATA,
        about / "WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n",
    }  # fmt: skip
    rows = []
    for file, text in texts.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        value = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        rows.append(f"{file.relative_to(packages)},sha256={value},{len(text)}")
    rows += ["../bin/tailrace,,", "tailrace/__pycache__/x.pyc,,", *(f"{about.name}/{one},," for one in OF_INSTALLER)]
    (about / "RECORD").write_text("\n".join(rows) + "\n")
    monkeypatch.setattr(wheel, "distribution", lambda _: PathDistribution(about))
    return packages


OF_INSTALLER = ("RECORD", "INSTALLER", "direct_url.json")


def no_build(source: Path, to: Path) -> None:
    raise AssertionError("there is no source to build")


def test_what_is_installed_is_packed_again_as_the_wheel_that_it_was(installed: Path, tmp_path: Path) -> None:
    made = [tmp_path / "one", tmp_path / "two"]
    for folder in made:
        folder.mkdir()
    files = [make_wheel(folder, no_build) for folder in made]
    assert sha256_of(files[0].file) == sha256_of(files[1].file)
    assert (files[0].file.name, files[0].version) == ("tailrace-7.1-py3-none-any.whl", "7.1")
    with zipfile.ZipFile(files[0].file) as held:
        about = "tailrace-7.1.dist-info"
        assert held.namelist() == ["tailrace/__init__.py", *(f"{about}/{n}" for n in ("METADATA", "WHEEL", "RECORD"))]
        assert held.read("tailrace/__init__.py") == b"x = 1\n"
        kept = (installed / about / "RECORD").read_text().splitlines()[:3]
        assert held.read(f"{about}/RECORD").decode().splitlines() == [*kept, f"{about}/RECORD,,"]


def test_a_package_that_was_changed_by_hand_is_no_wheel(installed: Path, tmp_path: Path) -> None:
    file = installed / "tailrace" / "__init__.py"
    file.write_text("x = 2\n")
    with pytest.raises(AwsError, match=r"__init__.py was changed after it was installed: install tailrace again"):
        make_wheel(tmp_path, no_build)
    file.unlink()
    with pytest.raises(AwsError, match=r"__init__.py is missing: install tailrace again, or pass a wheel by --wheel"):
        make_wheel(tmp_path, no_build)


@pytest.mark.usefixtures("installed")
def test_what_an_extra_needs_is_read_from_the_wheel(tmp_path: Path) -> None:
    made = make_wheel(tmp_path, no_build)
    assert [str(one) for one in made.needed("airflow")] == ["apache-airflow<4,>=3.1", "rfc3339-validator"]
    assert [str(one) for one in made.needed("airflow", "apache-airflow")] == ["rfc3339-validator"]
    with pytest.raises(AwsError, match=r"--extra kafak: tailrace 7\.1 has no such extra"):
        made.needed("kafak")
    for name in ("other-1.0-py3-none-any.whl", "tailrace.zip", "tailrace-1.0-py3-none-any.whl"):
        (tmp_path / name).write_text("no zip")
        with pytest.raises(AwsError, match=r"expected a wheel of tailrace, such as tailrace-0\.9\.0-py3-none-any\.whl"):
            copy_wheel(tmp_path / name, tmp_path / "bundle")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("version", ["3.0.6", "4.0", "newest"])
def test_an_airflow_that_tailrace_does_not_run_on_is_refused(version: str, small: Path, tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    made = ClusterBundle(tmp_path, tmp_path, airflow=version)
    with pytest.raises(AwsError, match=rf"--airflow {version}: Tailrace's DAGs need Airflow <4,>=3.1; make the envi"):
        made.build(small, quiet)


def test_a_bundle_has_what_the_project_needs_besides(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    project = Project(tmp_path)
    assert project.needs == []
    file = tmp_path / "pyproject.toml"
    file.write_text('[project]\nname = "shop"\ndependencies = ["Tailrace[spark]>=0.1", "regex>=2024"]\n')
    assert [str(one) for one in project.needs] == ["regex>=2024"]
    file.write_text('[project]\nname = "shop"\ndynamic = ["dependencies"]\n')
    with pytest.raises(AwsError, match=r"pyproject.toml: dependencies are dynamic; list them under \[project\]"):
        _ = project.needs


def test_airflow_s_versions_are_preferred_to_those_of_the_project() -> None:
    assert prefer("# Airflow's\nSome_Thing==1\n", "some-thing==2 ; python_version < '3.12'\nother==3\n") == (
        "# Airflow's\nSome_Thing==1\nother==3\n"
    )


def test_an_archive_of_the_same_files_is_the_same(tmp_path: Path) -> None:
    for name, at in (("one", 10**9), ("two", 2 * 10**9)):
        folder = tmp_path / name / "bin"
        folder.mkdir(parents=True)
        (folder / "tool").write_text("#!/bin/sh\n")
        (folder / "tool").chmod(0o755 if name == "one" else 0o700)
        (folder / "python").symlink_to("/usr/bin/python3")
        os.link(folder / "tool", folder / "twin") if name == "one" else (folder / "twin").write_text("#!/bin/sh\n")
        (folder / "twin").chmod(0o755)
        (folder / "__pycache__").mkdir()
        (folder / "__pycache__" / name).write_text(name)
        os.utime(folder / "tool", (at, at))
        write_archive(tmp_path / f"{name}.tar.gz", {"": tmp_path / name})
    assert sha256_of(tmp_path / "one.tar.gz") == sha256_of(tmp_path / "two.tar.gz")
    with tarfile.open(tmp_path / "one.tar.gz") as tar:
        assert tar.getnames() == ["bin", "bin/python", "bin/tool", "bin/twin"]
        assert tar.getmember("bin/twin").isreg(), "a link to another name is a file of its own"


def test_spark_is_told_where_the_parts_are() -> None:
    told = conf("s3://b/t/", ["jars/b.jar", "jobs/stream.py", "jars/a.jar"])
    assert told["spark.jars"] == "s3://b/t/jars/a.jar,s3://b/t/jars/b.jar"
    assert told["spark.archives"] == "s3://b/t/environment.tar.gz#environment,s3://b/t/definitions.tar.gz#definitions"


@deep
@pytest.mark.slow
def test_a_bundle_is_the_same_twice_and_runs_by_itself(tmp_path: Path) -> None:
    made = ClusterBundle(ROOT, Settings().jars, extras=("aws", "sqlite"))
    for name in ("one", "two"):
        made.build(tmp_path / name, quiet)
    held = tmp_path / "one"
    assert (held / MANIFEST).read_text() == (tmp_path / "two" / MANIFEST).read_text()
    told = json.loads((held / MANIFEST).read_text())
    wheel = f"tailrace-{tailrace.__version__}-py3-none-any.whl"
    jobs = {f"jobs/{one}.py" for one in ("stream", "backfill", "maintain")}
    assert {*told["files"]} >= {
        "environment.tar.gz", "definitions.tar.gz", "plugins.zip", "requirements.txt", "requirements-mwaa.txt", wheel,
        "pipelines/flights.py", "dags/dags/flights.py", "dags/pipelines/flights.py", *jobs,
    }  # fmt: skip
    assert {path: one["sha256"] for path, one in told["files"].items()} == {
        path.relative_to(held).as_posix(): sha256_of(path)
        for path in held.rglob("*")
        if path.is_file() and path.name != MANIFEST
    }
    for name in ("requirements.txt", "requirements-mwaa.txt"):
        lines = (held / name).read_text().splitlines()
        assert any(line.startswith("boto3==") for line in lines)
        assert any(line.startswith("apache-airflow==") for line in lines) == (name == "requirements.txt")
        assert any(line.startswith("sqlalchemy==") for line in lines) == (name == "requirements.txt")
        assert not any("://" in line for line in lines), "no address of an index"
    with zipfile.ZipFile(held / "plugins.zip") as file:
        assert file.namelist() == [wheel]
    runs_elsewhere(held, tmp_path / "elsewhere")
    streams_elsewhere(held, tmp_path / "elsewhere")


def runs_elsewhere(held: Path, folder: Path) -> None:
    """The environment and the definitions, unpacked as a driver has them, with nothing else."""
    for name in ("environment", "definitions"):
        with tarfile.open(held / f"{name}.tar.gz") as tar:
            tar.extractall(folder / name, filter="fully_trusted")
            assert not [one for one in tar.getnames() if one.endswith(("direct_url.json", ".pyc"))]
    (folder / "home").mkdir()

    def run(*words: str | Path) -> str:
        env = {"HOME": str(folder / "home"), "TAILRACE_CONTRACTS": "definitions/iceberg_schemas"}
        command = [folder / "environment" / "bin" / "python", "-I", *words]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = run("-c", "import tailrace.cli.main as main, boto3, pandas; print(main.__file__)")
    assert where.startswith(str(folder / "environment" / "lib")), "it is not the checkout's"
    assert "Usage: tailrace backfill" in run(held / "jobs" / "backfill.py", "--help")
    assert "8 not made yet" in run("-m", "tailrace.cli.main", "tables", "definitions/pipelines/flights.py")
    gone = "import importlib.util as u; print([n for n in ('pyspark', 'airflow', 'pytest') if u.find_spec(n)])"
    assert run("-c", gone).strip() == "[]"
    dag = [sys.executable, str(held / "dags" / "dags" / "flights.py")]
    env = os.environ | {"AIRFLOW_HOME": str(folder / "home")}
    done = subprocess.run(dag, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def streams_elsewhere(held: Path, folder: Path) -> None:
    """A stream as a cluster starts it: its own Spark and Java, and nothing else that is not of the bundle."""
    import pyspark

    settings = Settings()
    (folder / "landing").mkdir()
    shutil.copy(ROOT / "docs" / "model" / "flights.jsonl", folder / "landing")
    python = "./environment/bin/python"
    env = {
        "PATH": "/usr/bin:/bin", "HOME": str(folder / "home"), "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_HOME": str(quiet_home(require_java(settings.java_home), settings.jars)),
        "PYSPARK_DRIVER_PYTHON": python, "PYSPARK_PYTHON": python,
        "TAILRACE_WAREHOUSE": "lake", "TAILRACE_CONTRACTS": "definitions/iceberg_schemas",
    }  # fmt: skip
    jars = ",".join(str(path) for path in sorted((held / "jars").glob("*.jar")))
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[1]", "--driver-memory", "1g",
        "--conf", "spark.driver.host=127.0.0.1", "--jars", jars, str(held / "jobs" / "stream.py"),
        "definitions/pipelines/flights.py", "--from", "landing", "--format", "json", "--once",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = Lake(settings.model_copy(update={"warehouse": folder / "lake"})).table("flights").scan().to_arrow()
    assert found.num_rows == 37
