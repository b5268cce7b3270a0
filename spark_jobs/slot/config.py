"""The configuration of a slot."""

from __future__ import annotations

import msgspec

from spark_jobs.channel.grpc_channel import Address
from spark_jobs.slot.gang.held_ports import DEFAULT_PORTS, Ports
from spark_jobs.trial.trial_process import Program


class SlotConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a slot, as JSON. Secret; `Handover` passes it to the slots.

    Attributes:
        address: The channel's address.
        root: The run's folder in its store.
        program: The settings that all trials share.
        isolation: 'process', 'spawn' or 'none'.
        timeout: Time limit of a trial in seconds, or None.
        grace: Seconds between SIGTERM and SIGKILL at the time limit.
        spark_assigns_gpus: Whether Spark assigns GPUs in this application.
        as_text: Hyperparameters that TensorBoard shows as text.
        echo: Whether the driver wants the trials' output.
        modules: Modules to preload that the driver has; an executor without them cannot run trials.
        trials_per_gpu: The number of trials that share a GPU.
        mark: The location of the driver's mark; '' without one.
        keep_warm: Seconds for which the preloaded modules stay imported after a search; 0 if each
            slot imports them by itself.
        relayed: Whether the slots of an executor share a connection to the driver.
        in_gangs: Whether several slots may run a trial together.
        worker_ports: The ports on which they may listen for each other.
        one_host: Whether all slots are on the driver's host.
        from_parent: Whether each attempt starts from the checkpoint of the trial's parent, a retry
            too.
    """

    address: Address
    root: str
    program: Program
    isolation: str
    timeout: float | None
    grace: float
    spark_assigns_gpus: bool
    as_text: tuple[str, ...]
    echo: bool
    modules: tuple[str, ...] = ()
    trials_per_gpu: int = 1
    mark: str = ""
    keep_warm: float = 0.0
    relayed: bool = False
    in_gangs: bool = False
    worker_ports: Ports = DEFAULT_PORTS
    one_host: bool = False
    from_parent: bool = False
