#!/usr/bin/env bash
# Stops the control plane and deletes its data and configuration.
#   YES=1 scripts/reset.sh     without asking
set -euo pipefail
source "$(dirname "$0")/lib.sh"

if [ ! -d "$RUN_DIR" ]; then
    say "nothing to reset"
    exit 0
fi
# A directory that somebody named is deleted only when it is plainly one of ours.
[ "$RUN_DIR" = "$ROOT/.run" ] || [ -f "$CONFIG" ] || fail "$RUN_DIR has no gpuaas.toml, so make up did not make it: nothing was deleted."
data_dir=""
[ ! -f "$CONFIG" ] || data_dir="$(setting data_dir)"
if [ "${YES:-}" != 1 ]; then
    [ -t 0 ] || fail "this deletes ${data_dir:-$RUN_DIR}; say YES=1 to do so without being asked."
    read -r -p "Delete all data in ${data_dir:-$RUN_DIR}? [y/N] " answer
    [[ "$answer" =~ ^[yY] ]] || fail "nothing was deleted."
fi
"$ROOT/scripts/down.sh"
# The configuration may have been changed: delete only what is plainly ours.
case "$data_dir" in
"" | "$RUN_DIR"/*) ;;
/var/lib/gpuaas-dev-*) rm -rf -- "$data_dir" ;;
*) fail "the data is in $data_dir, which make up did not choose: delete it yourself, and $RUN_DIR with it." ;;
esac
rm -rf -- "$RUN_DIR"
say "reset: the next make up starts anew"
