#!/usr/bin/env bash
# Stops the control plane that `make up` started, its simulated nodes and its simulated payment
# provider, and waits until they have ended.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

STOP_SECONDS=60

# Ends what `$1` names the process of.
stop() {
    local find_pid="$1" pid_file="$2" log_file="$3" pid quarter
    if pid="$("$find_pid")"; then
        kill -TERM "$pid"
        for ((quarter = 0; quarter < STOP_SECONDS * 4; quarter++)); do
            "$find_pid" >/dev/null || break
            [ $((quarter % 4)) -ne 3 ] || printf '.'
            sleep 0.25
        done
        if "$find_pid" >/dev/null; then
            printf '\n'
            fail "process $pid has not ended after $STOP_SECONDS s; see $log_file"
        fi
    fi
    rm -f "$pid_file"
}

if [ ! -f "$CONFIG" ] || { ! server_pid && ! sim_pid && ! pay_pid; } >/dev/null; then
    rm -f "$PID_FILE" "$SIM_PID_FILE" "$PAY_PID_FILE"
    say "not running"
    exit 0
fi
printf 'stopping '
stop sim_pid "$SIM_PID_FILE" "$SIM_LOG_FILE"
stop pay_pid "$PAY_PID_FILE" "$PAY_LOG_FILE"
stop server_pid "$PID_FILE" "$LOG_FILE"
printf ' stopped\n'
