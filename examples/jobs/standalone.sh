#!/usr/bin/env bash
# A grid search on a standalone cluster: the driver runs here, the trials on the workers.
#
#   MASTER=spark://host:7077 LOGDIR=/shared/experiments PYSPARK_PYTHON=/opt/env/bin/python \
#       examples/jobs/standalone.sh [more options of submit.py]
#
# PYSPARK_PYTHON is a Python with the dependencies on every host; the packages are sent as a zip.
# Authentication is set in spark-defaults.conf of master, workers and this host: see SECURITY.md.
set -euo pipefail
case ${LOGDIR:?a folder that all hosts see, or hdfs://...} in
    *://*) ;;
    *) LOGDIR=$(realpath --canonicalize-missing "$LOGDIR") ;;
esac
cd "$(dirname "$0")"
make --silent --directory ../.. zip

options=(
    --master "${MASTER:?spark://host:7077}"
    --py-files ../../build/experiment.zip,digits.py
    --conf spark.executor.cores=1    # per executor
    --conf spark.cores.max=4         # of all executors; each core runs one trial
    --conf spark.executor.memory=1g  # of the executor's JVM; trials need memory of their own
    # One GPU per trial, if workers offer GPUs (spark.worker.resource.gpu.amount and
    # .discoveryScript):
    # --conf spark.executor.resource.gpu.amount=1
    # --conf spark.task.resource.gpu.amount=1
)
search=(
    --train digits:train
    --grid grid.yaml
    --optimization-key accuracy
    --logdir "$LOGDIR"
)
exec spark-submit "${options[@]}" ../../spark_jobs/submit.py "${search[@]}" "$@"
