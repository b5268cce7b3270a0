"""Hosts that trials die on for reasons that are the host's."""

from __future__ import annotations

from collections.abc import Collection

_MOST_DEATHS = 3  # different trials


class Hosts:
    """Knows which hosts get no more work, and why."""

    def __init__(self) -> None:
        self._deaths: dict[str, dict[int, str]] = {}
        self._excluded: dict[str, str] = {}

    def exclude(self, host: str, reason: str) -> None:
        """Give a host no more work.

        Args:
            host: Its name.
            reason: A sentence that names it; the first one counts.
        """
        self._excluded.setdefault(host, reason)

    def is_excluded(self, host: str) -> bool:
        """Does a host get no more work?"""
        return host in self._excluded

    def reasons(self, hosts: Collection[str]) -> list[str]:
        """Return why some of these hosts get no more work."""
        return [reason for host, reason in self._excluded.items() if host in hosts]

    def died(self, host: str, trial: int, message: str) -> None:
        """Note that a trial died on a host for a reason that is the machine's.

        A host on which three different trials died is excluded.
        """
        deaths = self._deaths.setdefault(host, {})
        deaths[trial] = message
        if len(deaths) == _MOST_DEATHS:
            trials = ", ".join(map(str, deaths))
            reason = f"host {host}: trials {trials} died there, the last one since {message}"
            self.exclude(host, reason)

    def avoided_by(self, trial: int) -> set[str]:
        """Return the hosts on which a trial has died."""
        return {host for host, deaths in self._deaths.items() if trial in deaths}
