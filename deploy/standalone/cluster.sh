#!/usr/bin/env bash
# Spark's master and workers on this host, from the PySpark that is installed or from SPARK_HOME.
#
#   cluster.sh start master              on one host
#   cluster.sh start worker              on each host, with MASTER=spark://10.0.0.1:7077
#   cluster.sh status | stop
#
# HOST (the address others reach this host by), PORT (7077), UI_PORT (8080 of a master, 8081 of a worker), CORES, MEMORY and
# FOLDER (~/.millstream-cluster: logs, process numbers, what a master must know to take over from the last) can be set.
set -euo pipefail

folder=${FOLDER:-$HOME/.millstream-cluster}
host=${HOST:-$(hostname -f)}
port=${PORT:-7077}

# After a reboot the number may be that of another process, which is nobody's to stop.
running() { [[ -f $folder/$1.pid ]] && grep -qs org.apache.spark.deploy "/proc/$(cat "$folder/$1.pid")/cmdline"; }

start() {
  local role=$1 class=$2
  shift 2
  if running "$role"; then
    echo "the $role runs already (process $(cat "$folder/$role.pid"))" >&2
    exit 1
  fi
  : "${SPARK_HOME:=$(python3 -c 'import pyspark; print(pyspark.__path__[0])' 2>/dev/null || true)}"
  if [[ ! -x $SPARK_HOME/bin/spark-class ]]; then
    echo "there is no Spark: have PySpark in python3's packages, or SPARK_HOME name an unpacked Spark" >&2
    exit 1
  fi
  export SPARK_HOME
  mkdir -p "$folder"
  # Away from the terminal: the shell's end is not theirs.
  setsid "$SPARK_HOME/bin/spark-class" "$class" "$@" >>"$folder/$role.log" 2>&1 </dev/null &
  echo $! >"$folder/$role.pid"
}

# Wait for a line of the log; give up when the process is gone.
said() {
  local role=$1 words=$2 from=$3
  for _ in $(seq 300); do
    if grep -q "$words" <(tail -c "+$((from + 1))" "$folder/$role.log" 2>/dev/null); then return; fi
    if ! kill -0 "$(cat "$folder/$role.pid")" 2>/dev/null; then break; fi
    sleep 0.2
  done
  echo "the $role has not started; the end of $folder/$role.log:" >&2
  tail -n 20 "$folder/$role.log" >&2
  exit 1
}

size() { stat -c %s "$folder/$1.log" 2>/dev/null || echo 0; }

case "${1:-} ${2:-}" in
"start master")
  from=$(size master)
  # A master that is started again knows the workers and the applications of the one before it. Programs are not taken
  # over HTTP, where nobody has to say who they are.
  export SPARK_MASTER_OPTS="-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory=$folder/recovery -Dspark.master.rest.enabled=false ${SPARK_MASTER_OPTS:-}"
  start master org.apache.spark.deploy.master.Master --host "$host" --port "$port" --webui-port "${UI_PORT:-8080}"
  said master "New state: \(ALIVE\|RECOVERING\)" "$from"
  echo "spark://$host:$port"
  ;;
"start worker")
  : "${MASTER:?the address of the master, as it said: MASTER=spark://10.0.0.1:7077}"
  from=$(size worker)
  start worker org.apache.spark.deploy.worker.Worker --host "$host" --webui-port "${UI_PORT:-8081}" \
    --cores "${CORES:-$(nproc)}" --memory "${MEMORY:-2g}" --work-dir "$folder/work" "$MASTER"
  said worker "Successfully registered with master" "$from"
  echo "a worker of $MASTER"
  ;;
"stop ")
  for role in worker master; do
    if running "$role"; then
      kill "$(cat "$folder/$role.pid")"
      while running "$role"; do sleep 0.1; done
      echo "the $role has ended"
    fi
    rm -f "$folder/$role.pid"
  done
  ;;
"status ")
  for role in master worker; do
    if running "$role"; then echo "$role: runs (process $(cat "$folder/$role.pid"))"; else echo "$role: does not run"; fi
  done
  ;;
*)
  sed -n 's/^# \{0,1\}//; 2,9p' "$0" >&2
  exit 2
  ;;
esac
