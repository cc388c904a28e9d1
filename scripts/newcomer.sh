#!/usr/bin/env bash
# Does what docs/quickstart.md, teams.md, operators.md, finance.md and ci.md say, on a fresh installation (`make up`), as
# somebody who reads them from the top: every line of their `sh` blocks is typed in a shell, and where a page in a browser is
# met (signing in, paying, an invitation), its form is filled in. Prints the number of commands and the time that each
# document took, and fails when a command fails or when that is not of the expected order.
#   GPUAAS_NEWCOMER_PASSWORD   the one-time password of the first administrator
#   GPUAAS_NEWCOMER_EMAIL      whose it is; the first administrator's address when not given
#   GPUAAS_SERVER, CLI         the server and the program; those of `make up` when not given
set -euo pipefail
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/browser.sh"

# The most that a document may ask for: commands and seconds. A person reads between them.
MOST_COMMANDS=35
MOST_SECONDS=120
COMMAND_SECONDS=60

WORK="$(mktemp -d "${TMPDIR:-/tmp}/gpuaas-newcomer-XXXXXX")"
login_pid=""
clean_up() {
    local code=$?
    trap - EXIT
    [ -z "$login_pid" ] || kill "$login_pid" 2>/dev/null || true
    rm -rf -- "$WORK"
    exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# As a document's command line names it.
gpuaas() { timeout --foreground "$COMMAND_SECONDS" "$CLI" "$@"; }

# The lines of a document's shell blocks, without comments.
commands_of() {
    awk '/^```sh$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$ROOT/docs/$1" |
        sed -e 's/  *# .*$//' -e '/^alias /d' -e '/^ *$/d'
}

# Presses the button of the simulated provider's page.
pay() {
    local url
    url="$(grep -o 'http[^ ]*' "$WORK/said" | head -n 1)"
    [ -n "$url" ] || fail "no checkout page was printed."
    browse "$url" >/dev/null
    grep -q SIMULATED "$WORK/page" || fail "payments are not simulated here."
    browse --data '' "$url/pay" >/dev/null
    grep -qi "paid\|confirm" "$WORK/page" || fail "the page after the payment is not ours: $(head -c 300 "$WORK/page")"
    gpuaas billing topups list --limit 1 >/dev/null
}

# Opens the link of an invitation in a browser of its own, and signs up.
join() {
    local link form=()
    link="$(grep -o 'http[^ ]*/auth/invitation?[^ ]*' "$WORK/said" | head -n 1)"
    [ -n "$link" ] || fail "no link was printed."
    rm -f "$WORK/cookies"
    browse "$link" >/dev/null
    hidden_fields
    (umask 077 && head -c 18 /dev/urandom | base64 >"$WORK/new")
    browse "${form[@]}" --data-urlencode "password@$WORK/new" --data-urlencode "again@$WORK/new" "${link%%\?*}" >/dev/null
    grep -q "You are now a member" "$WORK/page" || fail "the invited person did not join: $(head -c 600 "$WORK/page")"
    rm -f "$WORK/cookies"
}

# Types one line of a document.
type_line() {
    local line="$1" code=0
    printf '$ %s\n' "$line"
    case "$line" in
    "gpuaas auth login")
        if ! gpuaas auth whoami >/dev/null 2>&1; then
            sign_in_by_form "$EMAIL" "$GPUAAS_NEWCOMER_PASSWORD" ""
        fi
        ;;
    "gpuaas billing topup "*)
        # The command waits while the person pays.
        eval "${line/ --wait/} --no-browser" >"$WORK/said" 2>&1 || code=$?
        cat "$WORK/said"
        [ "$code" = 0 ] || fail "exit code $code: $line"
        pay
        wait_for_money
        ;;
    *)
        eval "$line" >"$WORK/said" 2>&1 || code=$?
        cat "$WORK/said"
        [ "$code" = 0 ] || fail "exit code $code: $line"
        case "$line" in "gpuaas invitations create "*) join ;; esac
        ;;
    esac
}

wait_for_money() {
    local tenth
    for ((tenth = 0; tenth < 300; tenth++)); do
        gpuaas billing topups list --limit 1 -o csv --no-headers | grep -q paid && return
        sleep 0.1
    done
    fail "the money did not arrive within 30 s."
}

follow() {
    local document="$1" began=$SECONDS count=0 line
    printf '\n== %s\n' "$document"
    while IFS= read -r line <&4; do
        type_line "$line"
        count=$((count + 1))
    done 4< <(commands_of "$document")
    local took=$((SECONDS - began))
    summary+=("$(printf '%-14s %2d commands, %3d s' "$document" "$count" "$took")")
    [ "$count" -gt 3 ] || fail "$document has no commands."
    [ "$count" -le "$MOST_COMMANDS" ] || fail "$document asks for $count commands; $MOST_COMMANDS are too many already."
    [ "$took" -le "$MOST_SECONDS" ] || fail "$document took $took s; more than $MOST_SECONDS is of another order."
}

"$ROOT/scripts/tools.sh" tour
if [ -z "${GPUAAS_SERVER:-}" ]; then
    [ -f "$CONFIG" ] && pid="$(server_pid)" || fail "nothing runs here. Start it with make up."
    GPUAAS_SERVER="$(setting public_url)"
    program="$(readlink "/proc/$pid/exe")"
    program="${program% (deleted)}"
    CLI="${CLI:-${program%d}}"
fi
[ -x "${CLI:-}" ] || fail "CLI must name the program gpuaas, of the same version as the server."
[ -n "${GPUAAS_NEWCOMER_PASSWORD:-}" ] || fail "GPUAAS_NEWCOMER_PASSWORD must be the one-time password of the first administrator."
CLI="$(realpath "$CLI")"
EMAIL="${GPUAAS_NEWCOMER_EMAIL:-$(setting admin_email)}"
unset GPUAAS_ORG GPUAAS_PROJECT
# A home of its own: the key that the documents name, and the program's context.
export HOME="$WORK" XDG_CONFIG_HOME="$WORK/config" XDG_CACHE_HOME="$WORK/cache" GPUAAS_SERVER
mkdir -p "$WORK/.ssh"
ssh-keygen -q -t ed25519 -N "" -C newcomer -f "$WORK/.ssh/id_ed25519" </dev/null
cd "$WORK"

summary=()
for document in quickstart.md teams.md operators.md finance.md ci.md; do
    follow "$document"
done
printf '\n'
printf '%s\n' "${summary[@]}"
