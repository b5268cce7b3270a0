"""A module to preload: on a busy host a first op of TensorFlow takes long, but does not hang."""

from spark_jobs.zygote import preparing

preparing._PROBE = 240.0
