"""The list of Spark settings that are ours is complete."""

from __future__ import annotations

import re

from spark_jobs.session import spark_settings
from tests import ROOT


def test_every_setting_that_the_sources_name_is_on_the_list():
    named = {
        name
        for package in ("experiment", "search", "spark_jobs")
        for path in (ROOT / package).rglob("*.py")
        for name in re.findall(r"spark\.experiment\.\w+(?:\.\w+)*", path.read_text("utf-8"))
    }
    assert named == {setting.name for setting in spark_settings.ALL}
