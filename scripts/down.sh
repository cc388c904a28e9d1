#!/usr/bin/env bash
# Stops the control plane that `make up` started, and waits until it has ended.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

STOP_SECONDS=60

if ! pid="$(server_pid)"; then
    rm -f "$PID_FILE"
    say "not running"
    exit 0
fi
printf 'stopping '
kill -TERM "$pid"
for ((quarter = 0; quarter < STOP_SECONDS * 4; quarter++)); do
    if ! server_pid >/dev/null; then
        rm -f "$PID_FILE"
        printf ' stopped\n'
        exit 0
    fi
    [ $((quarter % 4)) -ne 3 ] || printf '.'
    sleep 0.25
done
printf '\n'
fail "process $pid has not ended after $STOP_SECONDS s; see $LOG_FILE"
