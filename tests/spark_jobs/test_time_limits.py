"""The relations of time limits that depend on each other."""

import pytest

from spark_jobs import time_limits as limits
from spark_jobs.channel import exchange, file_channel, reporter

_LOOKS = file_channel._LISTING_ON_HDFS + file_channel._LONGEST_PAUSE_ON_HDFS

RELATIONS = {
    "the driver allows the pings of slots": limits.KEEPALIVE_ALLOWED < limits.KEEPALIVE,
    "a connection stays open while a trial runs": limits.SLOT_BEAT < limits.IDLE,
    "an answer that there is no work comes in time": limits.WAIT < limits.ANSWER,
    "a dead connection is noticed before a call gives up": (
        limits.KEEPALIVE + limits.KEEPALIVE_ANSWER < limits.ANSWER
    ),
    "slots connect again before a call gives up": limits.RECONNECT < limits.ANSWER,
    "last reports that got no answer are sent again": (
        max(limits.ANSWER, limits.MAILBOX_ANSWER + _LOOKS) + reporter._PAUSE + reporter._EVERY
        < limits.LAST_REPORTS
    ),
    "the mailbox answers in time, too": limits.MAILBOX_WAIT + _LOOKS < limits.MAILBOX_ANSWER,
    "HDFS may replace a DataNode that hangs": limits.HDFS_WRITTEN > 60,
    "a call of HDFS that hung is made again": limits.HDFS_PIECE < limits.HDFS_OUTAGE,
    "a call that HDFS_OUTAGE ended is made again": 2 * limits.HDFS_OUTAGE < limits.OUTAGE,
    "slots that see the mark leave sooner": limits.LEAVING < limits.OUTAGE,
    "a call that got no answer is made again": (
        2 * (limits.MAILBOX_ANSWER + exchange._PAUSE) < limits.OUTAGE
    ),
    "two calls without an answer are no lost slot": (
        2 * (limits.SLOT_BEAT + limits.MAILBOX_ANSWER) < limits.SLOT_SILENCE
    ),
    "two calls of a slot that waits longer are no lost slot": (
        2 * (limits.LONGER_WAIT + limits.ANSWER + exchange._PAUSE) < limits.SLOT_SILENCE
    ),
    "time passes where one slot waits for work": (
        max(limits.WAIT, limits.MAILBOX_WAIT) + _LOOKS < limits.SLOT_GAP
    ),
    "time passes where one slot runs a trial": (
        limits.SLOT_BEAT + reporter._EVERY < limits.SLOT_GAP
    ),
    "members of a gang hear of each other before their time to end is over": (
        10 * (limits.GANG_BEAT + reporter._EVERY) < limits.GANG_END
    ),
    "they do through the mailbox, too": (
        2 * (limits.MAILBOX_GANG_BEAT + _LOOKS + reporter._EVERY) < limits.GANG_END
    ),
    "a slot is judged in its silence": limits.SLOT_GAP < limits.SLOT_SILENCE,
    "a driver may miss some beats": 4 * limits.DRIVER_BEAT < limits.DRIVER_SILENCE,
    "slots of a dead driver have time to leave": (
        limits.SLOT_BEAT + max(limits.ANSWER, limits.MAILBOX_ANSWER) + limits.DRIVER_SILENCE
        <= limits.LEAVING
    ),
    "a zygote may miss many beats": 10 * limits.ZYGOTE_BEAT < limits.ZYGOTE_SILENCE,
    "a zygote that is ended ends its trial": limits.SWEEP < limits.ZYGOTE_END,
    "slots end their zygotes and what these left": limits.RUNNER_END <= limits.SLOTS_END,
    "tasks end their zygotes and what these left": limits.RUNNER_END < limits.TASKS_END,
    "a keeper refuses before a slot gives up": limits.WARM_IMPORT < limits.WARM_ANSWER,
    "a slot that waited for a kept zygote may import": (
        limits.WARM_ANSWER + limits.WARM_READY + limits.RUNNER_END + limits.WARM_IMPORT
        < limits.SLOT_SILENCE
    ),
    "workers wait for one that retries to copy a checkpoint": limits.OUTAGE < limits.CONNECT,
    "workers wait for one that imports anew": (
        limits.WARM_ANSWER + limits.WARM_READY + limits.OWN_IMPORT < limits.CONNECT
    ),
    "a relay says that it does not reach the driver": limits.RELAY_REACHES < limits.RELAY_STARTS,
    "a relay that hangs is noticed before a call gives up": (
        limits.RELAY_SILENCE + limits.RELAY_ANSWER < limits.ANSWER
    ),
    "slots with a useless relay connect themselves": 5 * limits.RELAY_OUTAGE < limits.OUTAGE,
    "looks at the server do not queue": limits.SERVER_ANSWER <= limits.SERVER_LOOK,
    "a server may refuse many looks": 10 * limits.SERVER_LOOK <= limits.SERVER_REFUSAL,
    "a silent server is asked twice to cancel a job": limits.SERVER_ANSWER < limits.SERVER_CANCEL,
}


@pytest.mark.parametrize("relation", RELATIONS)
def test_time_limits_keep_their_relation(relation):
    assert RELATIONS[relation]
