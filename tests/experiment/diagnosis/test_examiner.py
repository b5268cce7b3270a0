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


def session_with(**more):
    """Return a session without problems, but for what is given."""
    return SimpleNamespace(
        **{
            "hide_console_progress": lambda: None,
            "check_settings": lambda: None,
            "keep_warm": lambda: 0.0,
            "exposure": None,
            "tell_idle_gpus": lambda warn: None,
            "data_settings": DataSettings,
            "default_logdir": lambda: "",
            "in_container": False,
            **more,
        }
    )


@pytest.mark.parametrize(
    ("data", "level", "reason"),
    [
        ("/no/such/data", "warning", "[Errno 2] No such file or directory: '/no/such/data'"),
        ("hdfs:///data", "red", "fs.defaultFS is nothing"),  # slots get the same settings
    ],
)
def test_data_that_the_driver_cannot_read_may_still_be_on_executors(tmp_path, data, level, reason):
    session = session_with(asking=without_gpus)  # so no slot is examined
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
    session = session_with(asking=lambda *gpus: session)
    Examiner(session=session, timeout=60.0).examine(None, Location.parse(url), tmp_path)
    assert looked == [url, url]


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        ({"keep_warm": "a number of seconds"}, ("settings", "keep_warm: a number of seconds")),
        ({"default_logdir": "a path"}, ("logdir", "default_logdir: a path")),
    ],
)
def test_what_a_search_refuses_is_a_finding(refused, expected):
    def refuse(name, wanted):
        raise InvalidArgument(name, wanted, "another")

    steps = {
        name: lambda name=name, wanted=wanted: refuse(name, wanted)
        for name, wanted in refused.items()
    }
    session = session_with(asking=without_gpus, **steps)
    found = Examiner(session=session, timeout=60.0).examine(None, None, None).findings
    assert expected in [(finding.check, finding.expected) for finding in found]


@pytest.mark.parametrize(("default", "in_container"), [("", False), ("runs", True)])
def test_a_folder_that_a_search_refuses_is_a_finding(tmp_path, monkeypatch, default, in_container):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    session = session_with(
        asking=without_gpus, default_logdir=lambda: default, in_container=in_container
    )
    found = Examiner(session=session, timeout=60.0).examine(None, None, None).findings
    assert [(each.check, each.level) for each in found if each.check == "logdir"] == [
        ("logdir", "red")
    ]
