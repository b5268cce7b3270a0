#!/usr/bin/env bash
# A grid search on a standalone cluster: the driver runs here, the trials on the workers.
#
#   MASTER=spark://host:7077 LOGDIR=/shared/experiments PYSPARK_PYTHON=/opt/env/bin/python \
#       examples/jobs/standalone.sh [more options of submit.py]
#
# PYSPARK_PYTHON is a Python on every host that has the dependencies; the packages travel as a zip.
# Authentication is up to the spark-defaults.conf of master, workers and this host: see SECURITY.md.
set -euo pipefail
cd "$(dirname "$0")"
make --silent --directory ../.. zip

options=(
    --master "${MASTER:?spark://host:7077}"
    --py-files ../../build/experiment.zip,digits.py
    --conf spark.executor.cores=1    # of each executor
    --conf spark.cores.max=4         # of all; an executor takes one trial per core
    --conf spark.executor.memory=1g  # of its JVM; trials need theirs beside it
    # One GPU per trial, where workers announce them (spark.worker.resource.gpu.amount and
    # .discoveryScript):
    # --conf spark.executor.resource.gpu.amount=1
    # --conf spark.task.resource.gpu.amount=1
)
search=(
    --train digits:train
    --grid grid.yaml
    --optimization-key accuracy
    --preload "[sklearn.datasets, sklearn.neural_network]"  # left out: TensorFlow
    --logdir "${LOGDIR:?a folder that all hosts see, or hdfs://...}"
)
exec spark-submit "${options[@]}" ../../spark_jobs/submit.py "${search[@]}" "$@"
