"""Searches that end with their tests."""

import pytest

from tests.experiment.driver.searches import Search


@pytest.fixture
def start(tmp_path):
    """Start searches, each in a folder of its own, with slots that have said hello."""
    journals = []

    def start(searcher, *slots, **arguments):
        search = Search(tmp_path / str(len(journals)), searcher, **arguments)
        journals.append(search.journal)
        for slot in slots:
            search.hello(slot)
        return search

    yield start
    for journal in journals:
        journal.close()
