"""A search on a secured HDFS: who gets in, for how long, and that nobody sees how."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pyspark
import pytest

import experiment
from spark_jobs.session import active_data_settings
from spark_jobs.session.classic import ClassicSession
from spark_jobs.session.delegation_tokens import DelegationTokens, KnownTokens
from spark_jobs.storage.hadoop_settings import HadoopSettings
from spark_jobs.storage.locations import Location
from spark_jobs.storage.webhdfs import WebHdfs
from tests.kerberos.kdc import REALM
from tests.kerberos.secured import RENEW_SECONDS, USER

pytestmark = pytest.mark.kerberos

LINES = [f"line {number}" for number in range(1_000)]


@pytest.fixture(scope="module")
def folder(secured, sparks):
    """A folder that Spark wrote by Hadoop's own protocol.

    At once, as Spark renews no token that it got for itself, and here they end soon.
    """
    url = f"{secured.hdfs.uri}/lines"
    frame = sparks.get("local[2]").createDataFrame([(line,) for line in LINES], "value string")
    frame.write.text(url)
    return url


@pytest.fixture
def no_ticket(monkeypatch):
    monkeypatch.setenv("KRB5CCNAME", "FILE:/nonexistent")


def lines(url, settings):
    """Return the lines in a folder, read over WebHDFS."""
    location = Location.parse(url)
    files = WebHdfs(location, settings, patience=5)
    found: list[bytes] = []
    try:
        for status in files.listdir(location):
            files.read(status, found.append)
    finally:
        files.close()
    return sorted(b"".join(found).decode().split("\n")[:-1])


def refusal(url, settings):
    with pytest.raises(PermissionError) as caught:
        lines(url, settings)
    message = str(caught.value)
    assert url in message
    assert "\n" not in message
    for token in settings.tokens.values():
        assert token not in message
    return message


def test_a_token_of_the_driver_reads_what_spark_wrote(driver, folder, no_ticket):
    settings = ClassicSession(driver).data_settings().hadoop
    assert settings.user == USER
    assert len(settings.tokens) == 1
    assert lines(folder, settings) == sorted(LINES)


def test_a_token_writes_too(driver, secured, no_ticket, tmp_path):
    settings = ClassicSession(driver).data_settings().hadoop
    folder = Location.parse(f"{secured.hdfs.uri}/written")
    (tmp_path / "source").write_text("written\n")
    files = WebHdfs(folder, settings)
    files.make_folder(folder)
    files.write(folder.below("file"), tmp_path / "source")
    files.close()
    assert lines(str(folder), settings) == ["written"]


def test_a_session_keeps_its_tokens_while_they_have_time_left(driver):
    assert active_data_settings() == active_data_settings()


def test_without_a_token_or_a_ticket_nobody_is_let_in(secured, folder, no_ticket):
    message = refusal(folder, HadoopSettings(secured.properties, USER))
    assert "no Kerberos ticket for the NameNode at 127.0.0.1 (No Kerberos credentials" in message
    assert "type kinit" in message


def test_a_name_alone_is_not_believed(secured, folder):
    values = dict(secured.properties)
    del values["hadoop.security.authentication"]
    message = refusal(folder, HadoopSettings(values, "root"))
    denied = f"access denied, as user root at {secured.hdfs.http}: this HDFS requires Kerberos"
    assert denied in message


def test_an_invented_token_is_not_believed(secured, folder, driver):
    settings = ClassicSession(driver).data_settings().hadoop
    ((authority, token),) = settings.tokens.items()
    half = len(token) // 2
    turned = token[:half] + ("A" if token[half] != "A" else "B") + token[half + 1 :]
    assert "as user" in refusal(folder, HadoopSettings(settings.values, USER, {authority: turned}))


def test_a_process_without_spark_uses_its_ticket(secured, folder):
    settings = HadoopSettings.of_files()
    assert settings.is_secured
    assert lines(folder, settings) == sorted(LINES)
    code = f"import experiment; print(len(experiment.data.local_copy({folder!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip().isdigit(), done.stderr


def test_tokens_are_renewed_and_end_when_they_are_not(driver, folder, no_ticket):
    session = ClassicSession(driver)
    vars(driver.sparkContext).pop("_experiment_tokens")
    data = session.data_settings()
    with session.renewed_tokens(data):
        time.sleep(RENEW_SECONDS * 1.2)
        assert lines(folder, data.hadoop) == sorted(LINES)
    assert not [t for t in threading.enumerate() if t.name == "experiment-tokens"]
    time.sleep(RENEW_SECONDS * 1.1)
    message = refusal(folder, data.hadoop)
    assert f"the delegation token is not accepted, as user {USER} at http://" in message
    assert session.data_settings().hadoop.tokens != data.hadoop.tokens


def test_a_keytab_is_as_good_as_a_ticket(driver, secured, folder, no_ticket):
    tokens = DelegationTokens(
        driver.sparkContext._gateway,
        driver.sparkContext._jsc.hadoopConfiguration(),
        f"{USER}@{REALM}",
        str(secured.keytab),
    )
    known = KnownTokens()
    found = tokens.get(HadoopSettings(secured.properties).authorities(), known)
    assert known.valid_until > time.time()  # it was renewed, which tells its end
    assert lines(folder, HadoopSettings(secured.properties, USER, found)) == sorted(LINES)


def test_a_file_system_that_gives_no_token_is_only_warned_of(driver, caplog):
    session = ClassicSession(driver)
    (authority,) = session.data_settings().hadoop.tokens
    known = KnownTokens()
    began = time.monotonic()
    found = session._tokens().get([authority, "127.0.0.1:1"], known)
    assert list(found) == [authority]
    assert session._tokens().get([authority, "127.0.0.1:1"], known) == found  # not asked again
    assert time.monotonic() - began < 20
    (warning,) = [record for record in caplog.records if record.name == "experiment"]
    assert "no delegation token for hdfs://127.0.0.1:1, so trials cannot" in warning.getMessage()
    assert "\n" not in warning.getMessage()


def count_lines(part, url, seconds):
    import logging
    import os
    import time

    import experiment

    logging.basicConfig(level=logging.DEBUG, force=True)
    os.environ["KRB5CCNAME"] = "FILE:/nonexistent"
    time.sleep(seconds)
    copies = experiment.data.local_copy(url)
    print(experiment.data.listdir(url))
    try:
        experiment.data.local_copy(f"{url}/nothing")
    except OSError as error:
        logging.exception("no such file")
        print(error)
    return float(sum(len(copy.read_text().splitlines()) for copy in copies))


def test_a_run_lies_on_secured_hdfs_and_is_shown_without_spark(driver, secured, folder):
    logdir = f"{secured.hdfs.uri}/runs"
    values = {"part": range(2), "url": [folder], "seconds": [0]}
    result = experiment.launch(driver, count_lines, values, logdir=logdir, preload=())
    assert [trial.value for trial in result.trials] == [1_000.0] * 2, result.failed
    command = [sys.executable, "-m", "experiment", "show", str(result.logdir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "2/2" in done.stdout or "2 trials" in done.stdout


class Watch:
    """Notes the arguments and variables of all processes below this one."""

    def __init__(self):
        self.seen: dict[int, set[bytes]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _look(self):
        while not self._stop.wait(0.2):
            for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
                for name in ("cmdline", "environ"):
                    try:
                        data = Path(f"/proc/{process.pid}/{name}").read_bytes()
                    except OSError:
                        continue
                    self.seen.setdefault(process.pid, set()).add(data)


def test_a_search_reads_secured_data_and_nobody_sees_the_token(
    folder, driver_of_cluster, logdir, tmp_path, monkeypatch, caplog, capfd
):
    spark = driver_of_cluster
    given = []
    original = ClassicSession.data_settings
    monkeypatch.setattr(
        ClassicSession,
        "data_settings",
        lambda self: given.append(original(self)) or given[-1],
    )
    caplog.set_level(logging.DEBUG)
    seconds = RENEW_SECONDS * 1.2  # longer than a token lives that is not renewed
    with Watch() as watch:
        result = experiment.launch(
            spark,
            count_lines,
            {"part": range(2), "url": [folder], "seconds": [seconds]},
            logdir=logdir,
            preload=(),
        )
    assert [trial.value for trial in result.trials] == [1_000.0] * 2, result.failed
    tokens = {token for data in given for token in data.hadoop.tokens.values()}
    assert tokens
    executors = Path(pyspark.__file__).parent / "work" / spark.sparkContext.applicationId
    files = [path for root in (Path(logdir), tmp_path, executors) for path in root.rglob("*")]
    texts = {str(path): path.read_bytes() for path in files if path.is_file()}
    assert any(b"delegation=..." in text for text in texts.values())  # what DEBUG writes
    assert any("stderr" in name for name in texts)
    output = capfd.readouterr()
    texts |= {name: text.encode() for name, text in zip(("out", "err"), output, strict=True)}
    texts["log"] = caplog.text.encode()
    assert b"py4j" in texts["log"]
    texts |= {f"process {pid}": b"\n".join(said) for pid, said in watch.seen.items()}
    assert len(watch.seen) > 6  # executors, their Python processes, trials
    for name, text in texts.items():
        for token in tokens:
            assert token.encode() not in text, name
