"""What `experiment.doctor` examines."""

from types import SimpleNamespace

import pytest

from experiment.diagnosis import examiner
from experiment.diagnosis.examiner import Examiner
from search.errors import InvalidArgument
from spark_jobs.storage.locations import Location
from spark_jobs.trial.context import DataSettings


def without_gpus(*asked):
    raise InvalidArgument("gpus_per_trial", "none, as no executor has GPUs", "1")


@pytest.mark.parametrize(
    ("data", "level", "reason"),
    [
        ("/no/such/data", "warning", "[Errno 2] No such file or directory: '/no/such/data'"),
        ("hdfs:///data", "red", "fs.defaultFS is nothing"),  # slots get the same settings
    ],
)
def test_data_that_the_driver_cannot_read_may_still_be_on_executors(tmp_path, data, level, reason):
    session = SimpleNamespace(
        hide_console_progress=lambda: None,
        check_settings=lambda: None,
        exposure=None,
        asking=without_gpus,  # so no slot is examined
        data_settings=DataSettings,
    )
    examined = Examiner(session=session, timeout=60.0).examine(None, Location.parse(data), tmp_path)
    (finding,) = [f for f in examined.findings if f.check == "data"]
    assert (finding.host, finding.level) == ("driver", level)
    assert reason in finding.got


def test_the_whole_url_of_data_is_examined(tmp_path, monkeypatch):
    """Not the text for people, which has no signature."""
    url, looked = "https://host/data.csv?sig=1", []

    def ask(self, function, *, data, **others):
        looked.append(data)
        return []

    monkeypatch.setattr(Examiner, "_ask", ask)
    monkeypatch.setattr(examiner, "look_at_data", lambda data, settings: looked.append(data))
    session = SimpleNamespace(
        hide_console_progress=lambda: None,
        check_settings=lambda: None,
        exposure=None,
        asking=lambda *gpus: session,
        tell_idle_gpus=lambda warn: None,
        data_settings=DataSettings,
    )
    Examiner(session=session, timeout=60.0).examine(None, Location.parse(url), tmp_path)
    assert looked == [url, url]
