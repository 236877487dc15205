#!/usr/bin/env bash
# A program on YARN in cluster mode, with an environment that has its own Python.
#
#   conda create -n orders python=3.11 && conda activate orders
#   pip install conda-pack millstream-0.2.0-py3-none-any.whl
#   deploy/yarn/submit.sh job.py
set -euo pipefail
: "${1:?usage: submit.sh job.py [its arguments]}"
: "${HADOOP_CONF_DIR:?the folder of the settings of Hadoop, where YARN is found}"
: "${ENVIRONMENT:=environment.tar.gz}"

[[ -f $ENVIRONMENT ]] || conda pack --output "$ENVIRONMENT"
exec "${SPARK_HOME:+$SPARK_HOME/bin/}spark-submit" \
  --master yarn --deploy-mode cluster \
  --archives "$ENVIRONMENT#environment" \
  --conf spark.pyspark.python=./environment/bin/python \
  --conf spark.yarn.appMasterEnv.PYSPARK_PYTHON=./environment/bin/python \
  --conf spark.yarn.maxAppAttempts=4 \
  --conf spark.yarn.am.attemptFailuresValidityInterval=1h \
  --conf spark.executor.instances=2 \
  --conf spark.executor.cores=2 \
  --conf spark.executor.memory=1g \
  --conf spark.executor.memoryOverhead=2g \
  "$@"
