#!/usr/bin/env bash
# The same job by spark-submit: a driver pod, which starts the executors. Nobody starts it again when it is lost.
#
#   API=https://10.0.0.1:6443 deploy/kubernetes/submit.sh
set -euo pipefail
: "${API:?the address of the Kubernetes API, as kubectl cluster-info says it}"
: "${IMAGE:=registry.example/orders:1}"
: "${PROGRAM:=local:///opt/job/job.py}"

exec "${SPARK_HOME:+$SPARK_HOME/bin/}spark-submit" \
  --master "k8s://$API" --deploy-mode cluster --name orders \
  --conf "spark.kubernetes.container.image=$IMAGE" \
  --conf spark.kubernetes.authenticate.driver.serviceAccountName=spark \
  --conf spark.executor.instances=2 \
  --conf spark.executor.cores=2 \
  --conf spark.executor.memory=1g \
  --conf spark.executor.memoryOverhead=2g \
  "$@" "$PROGRAM"
