#!/usr/bin/env bash
# A grid search on Kubernetes, in cluster mode: the driver is a pod, and so is each executor.
#
#   MASTER=k8s://https://host:6443 IMAGE=registry/spark-experiment UPLOAD=hdfs://host:9000/uploads \
#       CLAIM=experiments examples/jobs/kubernetes.sh [more options of submit.py]
#
# IMAGE has Spark, Python and the dependencies; files are sent through UPLOAD, which it can read. CLAIM is
# a PersistentVolumeClaim for the runs, writable by many pods (ReadWriteMany). The exit status of the
# job is that of the driver's container.
set -euo pipefail
cd "$(dirname "$0")"
make --silent --directory ../.. zip

claim=volumes.persistentVolumeClaim.experiments
options=(
    --master "${MASTER:?k8s://https://host:port}"
    --deploy-mode cluster
    --name digits
    --py-files ../../build/experiment.zip,digits.py
    --files grid.yaml  # copied to the driver's working directory
    --conf spark.kubernetes.container.image="${IMAGE:?an image with Spark, Python and dependencies}"
    --conf spark.kubernetes.file.upload.path="${UPLOAD:?hdfs://..., s3a://...}"
    --conf spark.kubernetes.namespace="${NAMESPACE:-default}"
    # It must be allowed to create pods: kubectl create rolebinding ... --clusterrole=edit --serviceaccount=default:spark
    --conf spark.kubernetes.authenticate.driver.serviceAccountName=spark
    --conf spark.kubernetes.driver.$claim.options.claimName="${CLAIM:?a PersistentVolumeClaim}"
    --conf spark.kubernetes.driver.$claim.mount.path=/experiments
    --conf spark.kubernetes.executor.$claim.options.claimName="$CLAIM"
    --conf spark.kubernetes.executor.$claim.mount.path=/experiments
    # Authenticate its processes, encrypt their traffic, and disable the kill links of its web page:
    --conf spark.authenticate=true
    --conf spark.network.crypto.enabled=true
    --conf spark.ui.killEnabled=false
    --conf spark.executor.cores=1
    --conf spark.executor.memory=1g
    --conf spark.executor.memoryOverhead=2g  # memory of Python, that is of an executor's trials
    # Executors are added for slots, and removed when idle. There is no shuffle service:
    --conf spark.dynamicAllocation.enabled=true
    --conf spark.dynamicAllocation.shuffleTracking.enabled=true
    --conf spark.dynamicAllocation.maxExecutors=4
    # One GPU per trial; the script has to be in the image:
    # --conf spark.executor.resource.gpu.amount=1
    # --conf spark.executor.resource.gpu.vendor=nvidia.com
    # --conf spark.executor.resource.gpu.discoveryScript=/opt/spark/examples/src/main/scripts/getGpusResources.sh
    # --conf spark.task.resource.gpu.amount=1
)
search=(
    --train digits:train
    --grid grid.yaml
    --optimization-key accuracy
    --logdir /experiments
)
exec spark-submit "${options[@]}" ../../spark_jobs/submit.py "${search[@]}" "$@"
