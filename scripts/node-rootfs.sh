#!/usr/bin/env bash
# Makes the root file system that the tests of the node agent put users on: a minimal Debian with sshd, sudo, cron
# and at. Made once, kept in .tools/node-rootfs, made anew when what it consists of changes. The tests never write
# to it: each works on a layer of its own.
#
#   scripts/node-rootfs.sh          prints where it is
set -euo pipefail
source "$(dirname "$0")/lib.sh"

SUITE=bookworm
PACKAGES=openssh-server,sudo,iproute2,cron,at
DIR="$ROOT/.tools/node-rootfs"
WANTED="$SUITE $PACKAGES 1"

if [ "$(cat "$DIR/made" 2>/dev/null)" != "$WANTED" ]; then
    [ "$(id -u)" = 0 ] || fail "the tests of the node agent need root: they make users on a machine of their own. Run make test as root."
    say "making the root file system of test nodes in .tools/node-rootfs" >&2
    rm -rf "$DIR"
    mkdir -p "$DIR"
    mmdebstrap --quiet --variant=minbase --include="$PACKAGES" "$SUITE" "$DIR/base" >&2 ||
        fail "the root file system could not be made; mmdebstrap says above why. It needs a Debian mirror."
    printf '%s' "$WANTED" >"$DIR/made"
fi
printf '%s\n' "$DIR/base"
