#!/usr/bin/env bash
# A grid search on YARN, in cluster mode: the driver, too, runs on the cluster.
#
#   HADOOP_CONF_DIR=/etc/hadoop/conf LOGDIR=hdfs:///user/me/experiments \
#       ENVIRONMENT=environment.tar.gz examples/jobs/yarn.sh [more options of submit.py]
#
# ENVIRONMENT is a packed environment that has the dependencies; YARN unpacks it as ./environment on
# every host. spark-submit itself ends with 1 where the job does not end with 0: the job's own exit
# status is in the diagnostics of `yarn application -status ID`.
set -euo pipefail
ENVIRONMENT=$(realpath "${ENVIRONMENT:?the environment that venv-pack has packed}")
cd "$(dirname "$0")"
make --silent --directory ../.. zip

options=(
    --master yarn
    --deploy-mode cluster
    --py-files ../../build/experiment.zip,digits.py
    --files grid.yaml  # it lies in the driver's folder then
    --archives "$ENVIRONMENT#environment"
    --conf spark.yarn.appMasterEnv.PYSPARK_PYTHON=./environment/bin/python
    # Only its own processes talk to it, and nobody reads along; nobody ends its jobs on its page:
    --conf spark.authenticate=true
    --conf spark.network.crypto.enabled=true
    --conf spark.ui.killEnabled=false
    --conf spark.yarn.maxAppAttempts=1  # --resume goes on with a run; a second attempt would not
    --conf spark.executor.cores=1
    --conf spark.executor.memory=1g
    --conf spark.executor.memoryOverhead=2g  # Python's share: the trials of an executor
    # Executors come as slots are asked for, and go when they are idle:
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
    --preload "[sklearn.datasets, sklearn.neural_network]"  # left out: TensorFlow
    --logdir "${LOGDIR:?hdfs://..., or a folder that all hosts see}"
)
exec spark-submit "${options[@]}" ../../spark_jobs/submit.py "${search[@]}" "$@"
