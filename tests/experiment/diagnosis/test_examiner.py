"""What `experiment.doctor` examines."""

from types import SimpleNamespace

from experiment.diagnosis.examiner import Examiner


def test_executors_that_register_after_the_session_has_started_are_waited_for():
    session = SimpleNamespace(present_slots=lambda tick=None: 1 if tick is None else 6)
    assert Examiner(session=session, timeout=1.0)._slots() == 6
