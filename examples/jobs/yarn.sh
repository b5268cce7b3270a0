#!/usr/bin/env bash
# A grid search on YARN, in cluster mode: the driver, too, runs on the cluster.
#
#   HADOOP_CONF_DIR=/etc/hadoop/conf LOGDIR=hdfs:///user/me/experiments \
#       ENVIRONMENT=environment.tar.gz examples/jobs/yarn.sh [more options of submit.py]
#
# ENVIRONMENT is a packed environment with the dependencies; YARN unpacks it as ./environment on
# every host. spark-submit itself ends with 1 if the job does not end with 0: the job's own exit
# status is in the diagnostics of `yarn application -status ID`.
set -euo pipefail
ENVIRONMENT=$(realpath "${ENVIRONMENT:?the environment that venv-pack has packed}")
cd "$(dirname "$0")"
make --silent --directory ../.. zip

options=(
    --master yarn
    --deploy-mode cluster
    --py-files ../../build/experiment.zip,digits.py
    --files grid.yaml  # copied to the driver's folder
    --archives "$ENVIRONMENT#environment"
    --conf spark.yarn.appMasterEnv.PYSPARK_PYTHON=./environment/bin/python
    # Authenticate its processes, encrypt their traffic, and disable the kill links of its web page:
    --conf spark.authenticate=true
    --conf spark.network.crypto.enabled=true
    --conf spark.ui.killEnabled=false
    --conf spark.yarn.maxAppAttempts=1  # a second attempt would not resume the run; use --resume
    --conf spark.executor.cores=1
    --conf spark.executor.memory=1g
    --conf spark.executor.memoryOverhead=2g  # memory of Python, that is of an executor's trials
    # Executors are added for slots, and removed when idle:
    --conf spark.dynamicAllocation.enabled=true
    --conf spark.dynamicAllocation.shuffleTracking.enabled=true
    --conf spark.dynamicAllocation.maxExecutors=4
    # One GPU per trial, of YARN's yarn.io/gpu; the script comes with Spark (examples/src/main/scripts):
    # --files grid.yaml,getGpusResources.sh
    # --conf spark.executor.resource.gpu.amount=1
    # --conf spark.executor.resource.gpu.discoveryScript=./getGpusResources.sh
    # --conf spark.task.resource.gpu.amount=1
)
search=(
    --train digits:train
    --grid grid.yaml
    --optimization-key accuracy
    --logdir "${LOGDIR:?hdfs://..., or a folder that all hosts see}"
)
exec spark-submit "${options[@]}" ../../spark_jobs/submit.py "${search[@]}" "$@"
