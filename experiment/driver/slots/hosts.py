"""Hosts on which trials die because of the host."""

from __future__ import annotations

from collections.abc import Collection

_MOST_DEATHS = 3  # number of different trials


class Hosts:
    """The hosts that get no more trials, and the reasons."""

    def __init__(self) -> None:
        self._deaths: dict[str, dict[int, str]] = {}
        self._excluded: dict[str, str] = {}

    def exclude(self, host: str, reason: str) -> None:
        """Give a host no more trials.

        Args:
            host: The host's name.
            reason: A sentence that names the host; the first one counts.
        """
        self._excluded.setdefault(host, reason)

    def is_excluded(self, host: str) -> bool:
        """Return whether a host gets no more trials."""
        return host in self._excluded

    def reasons(self, hosts: Collection[str]) -> list[str]:
        """Return the reasons why some of these hosts get no more trials."""
        return [reason for host, reason in self._excluded.items() if host in hosts]

    def died(self, host: str, trial: int, message: str) -> None:
        """Record that a trial died on a host because of the machine.

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
