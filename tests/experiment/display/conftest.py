"""A progress display with a recording view."""

from types import SimpleNamespace

import pytest

from tests.experiment.display.searches import Clock, Recording, begin


@pytest.fixture
def start():
    """Create a `Progress` with a view that records and a clock that stands still."""

    def start(**arguments):
        view, clock = Recording(), Clock()
        given = {"name": "train", "view": view, "clock": clock} | arguments
        folder, asked = given.pop("folder", "/runs/a b"), given.pop("asked", "4 slots")
        progress = begin(given.pop("name"), folder, asked, **given)
        return SimpleNamespace(progress=progress, view=view, clock=clock)

    return start
