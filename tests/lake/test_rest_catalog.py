"""What a REST catalog adds: tokens, replies that are lost, a server that dies and comes back (rules X1, X2)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from typer.testing import CliRunner

from tailrace.cli.main import app
from tailrace.engines.spark.rows.branch_rows import append
from tailrace.lake.catalog import rest_client, sure_commits
from tailrace.lake.catalog.lake import Lake, no_rows
from tailrace.lake.catalog.transactions import open_transaction
from tailrace.lake.commit.branch import Branch
from tailrace.lake.commit.pins import pin_snapshots
from tailrace.lake.schema.lake_errors import CatalogError, LakeError, MovedError, UnansweredError
from tailrace.lake.schema.pipeline_tables import ledger_contract
from tailrace.model.samples import examples
from tailrace.settings import Settings
from tests.support.engines.sessions import session
from tests.support.faults.killing import SEED
from tests.support.services.catalogs import Servers
from tests.support.services.rest_catalog import CLIENT, Forward, Gate, Reply
from tests.support.waiting import until

pytestmark = pytest.mark.slow

CONTRACT = ledger_contract(examples.figure(14))
LEDGER = CONTRACT.table


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with Servers(tmp_path_factory.mktemp("servers")) as made:
        yield made


@pytest.fixture
def gate(servers: Servers) -> Gate:
    servers.rest.faults.clear()
    return servers.rest


@pytest.fixture
def lake(servers: Servers, gate: Gate, settings: Settings) -> Lake:
    made = Lake(servers.lake("rest", settings)[0])
    made.ensure(CONTRACT, {"epoch": "-1"})
    return made


def entered(lake: Lake, epoch: int) -> int:
    """Enter a row, on top of whatever others enter; gives the snapshot."""
    while True:
        try:
            head = lake.head(LEDGER)
            return lake.enter(LEDGER, [{"kind": "pane", "epoch": epoch}], {"epoch": str(epoch)}, head.snapshot)
        except MovedError:
            continue


def epochs(lake: Lake) -> list[int]:
    """The epochs of the rows, each of which is also that of one commit."""
    rows = sorted(lake.table(LEDGER).scan().to_arrow()["epoch"].to_pylist())
    assert rows == sorted(int(one.properties["epoch"]) for one in lake.commits(LEDGER))[1:]
    return rows


def test_X1_two_writers_that_race_lose_and_double_nothing(lake: Lake) -> None:
    writers = [Lake(lake.settings) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        made = pool.map(lambda n: [entered(writers[n], 10 * n + k) for k in range(10)], range(2))
    assert len({snapshot for snapshots in made for snapshot in snapshots}) == 20
    assert epochs(lake) == list(range(20))


def test_X1_a_commit_to_another_branch_in_between_is_one_that_moved_the_table(lake: Lake) -> None:
    """This server refuses it by status 400, as one with an old sequence number."""
    stale, head = lake.table(LEDGER), lake.head(LEDGER).snapshot
    assert head is not None
    lake.move(LEDGER, "other", head, None)
    with open_transaction(lake.table(LEDGER)) as transaction:
        transaction.append(no_rows(stale.schema()), branch="other")
    with pytest.raises(MovedError), open_transaction(stale) as transaction:
        transaction.append(no_rows(stale.schema()))
    assert lake.head(LEDGER).snapshot == head


Fault = Callable[[Forward], Reply | None]


def cut(forward: Forward) -> None:
    forward()


def never_sent(forward: Forward) -> None:
    return


def answered(status: int, *, made: bool) -> Fault:
    def fault(forward: Forward) -> Reply:
        if made:
            forward()
        return Reply(status, json.dumps({"error": {"message": "", "type": "", "code": status}}).encode())

    return fault


FAULTS = {
    "the reply is cut": cut,
    "the commit is cut": never_sent,
    **{f"{code} of one that is made": answered(code, made=True) for code in (409, 500, 502, 503, 504)},
    **{f"{code} of one that is not": answered(code, made=False) for code in (429, 500, 502, 503, 504)},
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_X2_a_commit_of_which_it_is_not_known_whether_it_was_made_is_made_once(
    lake: Lake, gate: Gate, fault: Fault
) -> None:
    head = lake.head(LEDGER).snapshot
    gate.faults += [fault, fault] if fault is not never_sent else [fault] * 3
    made = lake.enter(LEDGER, [{"kind": "pane", "epoch": 7}], {"epoch": "7"}, head)
    assert lake.head(LEDGER).snapshot == made
    assert epochs(lake) == [7]


@pytest.mark.parametrize("fault", [cut, never_sent, answered(500, made=True), answered(500, made=False)])
def test_X2_a_change_of_branches_and_tags_is_made_whatever_becomes_of_the_reply(
    lake: Lake, gate: Gate, fault: Fault
) -> None:
    head = lake.head(LEDGER).snapshot
    assert head is not None
    gate.faults.append(fault)
    lake.move(LEDGER, "one", head, None)
    gate.faults.append(fault)
    with pin_snapshots(lake, {LEDGER: head}):
        assert len(lake.refs(LEDGER)) == 3
        gate.faults.append(fault)
    gate.faults.append(fault)
    lake.unname(LEDGER, ["one"])
    assert [*lake.refs(LEDGER)] == ["main"]
    assert gate.faults == []


@pytest.mark.parametrize("fault", [cut, never_sent, answered(500, made=True), answered(503, made=False)])
def test_X2_a_table_is_made_whatever_becomes_of_the_reply(
    servers: Servers, gate: Gate, settings: Settings, fault: Fault
) -> None:
    made = Lake(servers.lake("rest", settings)[0])
    gate.faults.append(fault)
    made.ensure(CONTRACT, {"epoch": "-1"})
    assert gate.faults == []
    assert [one.properties for one in made.commits(LEDGER)] == [{"epoch": "-1"}]


@pytest.mark.parametrize("first", [True, False], ids=["which is the first", "after another's"])
def test_X2_a_commit_that_arrives_when_nobody_waits_for_it_any_more_is_made_once_or_refused(
    lake: Lake, gate: Gate, first: bool
) -> None:
    late: list[Forward] = []

    def held(forward: Forward) -> None:
        late.append(forward)
        if not first:
            entered(Lake(lake.settings), 9)

    head = lake.head(LEDGER).snapshot
    gate.faults.append(held)
    if first:
        lake.enter(LEDGER, [{"kind": "pane", "epoch": 7}], {"epoch": "7"}, head)
    else:
        with pytest.raises(MovedError):
            lake.enter(LEDGER, [{"kind": "pane", "epoch": 7}], {"epoch": "7"}, head)
    assert late[0]().status in (400, 409)
    assert epochs(lake) == [7 if first else 9]


def test_X2_a_server_that_is_busy_with_the_first_sending_of_a_commit_does_not_have_it_deleted(
    lake: Lake, gate: Gate
) -> None:
    """It refuses the second one, though the branch has not moved yet, and then makes the first."""
    late: list[Forward] = []

    def held(forward: Forward) -> None:
        late.append(forward)

    def busy(forward: Forward) -> Reply:
        return answered(409, made=False)(forward)  # type: ignore[return-value]

    def busy_no_more(forward: Forward) -> Reply:
        late[0]()
        return forward()

    gate.faults += [held, busy, busy_no_more]
    made = lake.enter(LEDGER, [{"kind": "pane", "epoch": 7}], {"epoch": "7"}, lake.head(LEDGER).snapshot)
    assert lake.head(LEDGER).snapshot == made
    assert epochs(lake) == [7]


def back_after(gate: Gate, seconds: float) -> threading.Thread:
    def start() -> None:
        time.sleep(seconds)
        gate.server.start()

    one = threading.Thread(target=start)
    one.start()
    return one


@pytest.mark.parametrize("when", ["before", "while", "after", "after, and what stands before it sent it twice"])
def test_X2_a_server_that_dies_at_a_commit_and_comes_back_has_it_once(lake: Lake, gate: Gate, when: str) -> None:
    back: list[threading.Thread] = []

    def dies(forward: Forward) -> Reply | None:
        said = None
        match when:
            case "while":
                with ThreadPoolExecutor(1) as pool:
                    sent = pool.submit(forward)
                    # A commit takes it about so long.
                    time.sleep(0.01)
                    gate.server.kill()
                    sent.exception()
            case "after":
                forward()
            case "after, and what stands before it sent it twice":
                forward()
                said = forward()
        gate.server.kill()
        back.append(back_after(gate, 0.3))
        return said

    gate.faults.append(dies)
    made = lake.enter(LEDGER, [{"kind": "pane", "epoch": 7}], {"epoch": "7"}, lake.head(LEDGER).snapshot)
    back[0].join()
    assert lake.head(LEDGER).snapshot == made
    assert epochs(lake) == [7]


def test_X2_a_server_that_dies_and_comes_back_while_two_write_loses_and_doubles_nothing(lake: Lake, gate: Gate) -> None:
    chance = Random(SEED)

    def write(number: int) -> None:
        own, left = Lake(lake.settings), [*range(100 * number, 100 * number + 12)]
        while left:
            try:
                head = own.head(LEDGER).snapshot
                own.enter(LEDGER, [{"kind": "pane", "epoch": left[0]}], {"epoch": str(left[0])}, head)
                del left[0]
            except MovedError:
                continue
            except UnansweredError:
                # It did not answer what it was asked before the commit.
                time.sleep(0.05)

    with ThreadPoolExecutor(2) as pool:
        writing = [pool.submit(write, number) for number in range(2)]
        for _ in range(2):
            enough = gate.commits + 3
            until(lambda: gate.commits >= enough, every=0.01)  # noqa: B023
            time.sleep(chance.random() / 20)
            gate.server.kill()
            gate.server.start()
        for one in writing:
            one.result()
    assert epochs(lake) == [*range(12), *range(100, 112)], f"seed {SEED}"


def test_X3_a_snapshot_that_a_branch_goes_back_to_meanwhile_is_not_forgotten(lake: Lake, gate: Gate) -> None:
    """A REST catalog applies what it is told to what it has by then; the branch would go with its snapshot."""
    first, last = entered(lake, 1), entered(lake, 2)
    lake.move(LEDGER, "other", last, None)

    def after_another(forward: Forward) -> Reply:
        Lake(lake.settings).move(LEDGER, "other", first, last)
        return forward()

    gate.faults.append(after_another)
    lake.forget(LEDGER, [first])
    assert lake.refs(LEDGER) == {"main": last, "other": first}
    assert lake.table(LEDGER).snapshot_by_id(first) is not None


def test_X2_a_commit_that_stays_unknown_is_an_error_and_keeps_its_files(
    lake: Lake, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(forward: Forward) -> None:
        forward()
        gate.server.kill()

    monkeypatch.setattr(sure_commits, "PATIENCE", 0.3)
    gate.faults.append(dies)
    head = lake.head(LEDGER).snapshot
    try:
        with pytest.raises(CatalogError, match=r"not known whether the last commit .* start it again once the catalog"):
            lake.enter(LEDGER, [{"kind": "pane", "epoch": 7}], {"epoch": "7"}, head)
    finally:
        gate.server.start()
    assert epochs(lake) == [7], "whoever starts again finds it"


def told(settings: Settings, **more: object) -> Settings:
    """Settings with more, checked as those of a person are."""
    given = {name: getattr(settings, name) for name in ("warehouse", "namespace", "catalog_uri", "catalog_secret")}
    return Settings(**{**given, **more})


def refused(settings: Settings) -> str:
    with pytest.raises(LakeError) as caught:
        _ = Lake(settings).tables
    return str(caught.value)


def test_a_token_that_is_none_or_not_good_is_said_with_the_setting_and_without_the_token(
    lake: Lake, gate: Gate
) -> None:
    wrong = refused(told(lake.settings, catalog_secret="not-this-one"))
    assert "refuses the token: set TAILRACE_CATALOG_SECRET to one that it takes" in wrong
    assert "not-this-one" not in wrong
    none = refused(told(lake.settings, catalog_secret=None))
    assert "asks for a token: set TAILRACE_CATALOG_SECRET, or TAILRACE_CATALOG_CREDENTIAL" in none
    assert gate.heard is None


def test_a_catalog_that_asks_nobody_who_he_is_needs_no_token(lake: Lake, gate: Gate) -> None:
    by = Lake(told(lake.settings, catalog_secret=None, catalog_uri=f"http://127.0.0.1:{gate.server.port}"))
    assert entered(by, 1)
    assert epochs(by) == [1]


def client(lake: Lake, gate: Gate, **more: object) -> Settings:
    by = {"catalog_secret": None, "catalog_credential": CLIENT, "catalog_token_uri": gate.token_uri}
    return told(lake.settings, **{**by, **more})


def test_a_client_gets_tokens_and_another_when_one_has_expired(lake: Lake, gate: Gate, servers: Servers) -> None:
    by = Lake(client(lake, gate, catalog_scope="catalog:all"))
    assert entered(by, 1)
    before, gate.token = gate.token, "another"
    try:
        assert entered(by, 2)
        with pytest.raises(CatalogError, match="refuses the token: set TAILRACE_CATALOG_SECRET"):
            lake.head(LEDGER)
    finally:
        gate.token = before
    assert epochs(lake) == [1, 2]


def test_a_client_that_is_refused_or_gets_the_wrong_tokens_is_told_which_setting_to_correct(
    lake: Lake, gate: Gate
) -> None:
    wrong = refused(client(lake, gate, catalog_credential="tailrace:nobody-knows"))
    assert "refuses the client (invalid_client): correct TAILRACE_CATALOG_CREDENTIAL" in wrong
    assert "nobody-knows" not in wrong
    away = refused(client(lake, gate, catalog_token_uri="http://127.0.0.1:1/tokens"))
    assert "tokens http://127.0.0.1:1/tokens does not answer (connection refused)" in away
    assert "set TAILRACE_CATALOG_TOKEN_URI" in away


def doctor(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> dict[str, dict[str, str]]:
    """Each check's finding, by its name; no secret is in any."""
    for name in settings.model_fields_set & {"warehouse", "namespace", "catalog_uri"}:
        monkeypatch.setenv(f"TAILRACE_{name.upper()}", str(getattr(settings, name)))
    secret = settings.catalog_secret.get_secret_value() if settings.catalog_secret else "none"
    monkeypatch.setenv("TAILRACE_CATALOG_SECRET", secret)
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert "Traceback" not in result.output
    assert secret not in result.output
    return {one["name"]: one for one in json.loads(result.stdout)["checks"]}


def test_doctor_finds_nothing_wrong_with_a_catalog_that_is_right(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(lake.settings.warehouse).mkdir(exist_ok=True)
    found = doctor(monkeypatch, told(lake.settings))
    assert found["catalog"]["found"] == f"{lake.settings.catalog_uri}: namespace {lake.settings.namespace}, 1 table"
    assert found["commits"]["found"] == "a commit that was overtaken by another is refused"
    assert lake.tables == [LEDGER], "it leaves nothing behind"


def test_doctor_says_what_mends_a_wrong_token_and_a_server_that_is_none(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = doctor(monkeypatch, told(lake.settings, catalog_secret="not-this-one"))["catalog"]
    assert found["found"] == f"the catalog {lake.settings.catalog_uri} refuses the token"
    assert found["mend"].startswith("set TAILRACE_CATALOG_SECRET to one that it takes")
    found = doctor(monkeypatch, told(lake.settings, catalog_uri="http://127.0.0.1:1/api"))["catalog"]
    assert found["found"] == "the catalog http://127.0.0.1:1/api does not answer (connection refused)"
    assert "set TAILRACE_CATALOG_URI to where it does" in found["mend"]


def test_a_server_that_takes_the_request_and_says_nothing_is_not_waited_for_for_ever(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest_client, "ANSWER", 0.2)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert f"{uri} does not answer (nothing within 0.2 s)" in refused(told(lake.settings, catalog_uri=uri))


def test_no_secret_is_in_what_is_said_of_settings_and_of_a_lake(lake: Lake, gate: Gate) -> None:
    by = client(lake, gate)
    said = f"{by!r} {by.model_dump_json()} {Lake(by)!r} {lake!r} {lake.catalog!r}"
    assert "hush" not in said
    assert gate.token not in said


@pytest.mark.spark
def test_spark_comes_in_as_the_client_and_its_pages_do_not_show_it(lake: Lake, gate: Gate) -> None:
    by = client(lake, gate, driver_memory="1200m", shuffle_partitions=2)
    spark = session(by)
    entered(lake, 1)
    spark.sql(f"INSERT INTO {LEDGER} SELECT * FROM {LEDGER}")
    assert lake.table(LEDGER).scan().to_arrow()["epoch"].to_pylist() == [1, 1]
    shown = spark.sql("SET spark.sql.catalog.lake.credential").collect()[0]["value"]
    assert "redacted" in shown
    assert "hush" not in shown


@pytest.mark.spark
@pytest.mark.parametrize("fault", [cut, never_sent, answered(503, made=True), answered(500, made=True)])
def test_X2_what_spark_commits_is_there_once_or_the_commit_fails(lake: Lake, gate: Gate, fault: Fault) -> None:
    """It is on the writer's own branch, which whoever starts again sets back to where main is."""
    spark = session(told(lake.settings, driver_memory="1200m", shuffle_partitions=2))
    entered(lake, 1)
    branch = Branch(lake, LEDGER, "stream_1")
    branch.start()
    target = branch.open_for_spark()
    gate.faults.append(fault)
    try:
        spark.sql(f"INSERT INTO {target} SELECT * FROM {LEDGER}")
        rows = [2]
    except (PySparkException, Py4JJavaError):
        rows = [1, 2]
    assert gate.faults == []
    assert len(lake.table(LEDGER).scan().use_ref("stream_1").to_arrow()) in rows
    assert epochs(lake) == [1]


@pytest.mark.spark
def test_X1_what_spark_writes_while_another_branch_is_committed_to_is_written_again(lake: Lake, gate: Gate) -> None:
    """This server refuses it by status 400, after which Iceberg does not try again by itself."""
    spark = session(told(lake.settings, driver_memory="1200m", shuffle_partitions=2))
    entered(lake, 1)
    branch = Branch(lake, LEDGER, "stream_1")
    branch.start()

    def after_another(forward: Forward) -> Reply:
        entered(Lake(lake.settings), 9)
        return forward()

    gate.faults.append(after_another)
    append(spark.sql(f"SELECT * FROM {LEDGER} WHERE epoch = 1"), branch, {"epoch": "2"})
    assert gate.faults == []
    assert lake.table(LEDGER).scan().use_ref("stream_1").to_arrow()["epoch"].to_pylist() == [1, 1]
    assert epochs(lake) == [1, 9]


@pytest.mark.spark
def test_no_secret_is_in_the_command_line_of_the_jvm(lake: Lake, gate: Gate) -> None:
    """A process of its own, since the tests' JVM runs already: 8 seconds."""
    by = client(lake, gate)
    given = {"catalog_credential": CLIENT, "catalog_token_uri": gate.token_uri, "driver_memory": "1g"}
    given |= {name: str(getattr(by, name)) for name in ("warehouse", "namespace", "catalog_uri")}
    env = os.environ | {f"TAILRACE_{name.upper()}": value for name, value in given.items()}
    ran = subprocess.run([sys.executable, "-c", SHOWS], env=env, capture_output=True, text=True, check=True)
    assert LEDGER in ran.stdout
    assert "org.apache.spark.deploy.SparkSubmit" in ran.stdout
    assert "hush" not in ran.stdout


SHOWS = """
from pathlib import Path
from tailrace.engines.spark.session import open_session
from tailrace.settings import Settings
spark = open_session(Settings())
print(spark.sql("SHOW TABLES").collect())
jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
print(Path(f"/proc/{jvm}/cmdline").read_text())
spark.stop()
"""
