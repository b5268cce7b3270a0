"""Tests of all packages, in folders that mirror theirs, and tests of whole searches."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The root of the project."""
