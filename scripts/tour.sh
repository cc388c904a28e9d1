#!/usr/bin/env bash
# Shows a running installation (`make up`) by its commands, as a newcomer would type them: sign in, pay, launch, watch
# the cost, release, and check the books. Each command is printed with its answer. Ends with 0 only when everything
# went as expected, and leaves behind an organization without money and without machines.
#   GPUAAS_TOUR_PASSWORD=… scripts/tour.sh   signs in by itself; a one-time password is changed on the way, to
#                                            GPUAAS_TOUR_NEW_PASSWORD or to one that is made up and shown
#   GPUAAS_SERVER, GPUAAS_TOUR_CLI           another server than that of `make up`, and the program for it
#   GPUAAS_TOUR_EMAIL                        who signs in; the first administrator when not given
set -euo pipefail
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/browser.sh"

SKU=h200-sxm-slice
GPUS=4
AMOUNT=20.00
AMOUNT_MINOR=2000
MACHINE=tour-1
KEY_NAME=tour
WINDOW=billing.window_seconds
WINDOW_SECONDS=10
# Longest waits: for one command, for money to arrive or to go back, and for three windows of use to be charged. The
# worker may still be in a window of a minute when the tour makes windows shorter.
COMMAND_SECONDS=60
MONEY_SECONDS=30
USE_SECONDS=100
MOST_ORGS=20

WORK="$(mktemp -d "${TMPDIR:-/tmp}/gpuaas-tour-XXXXXX")"
login_pid="" key_added="" window_before="" launched="" began=$SECONDS

heading() { printf '\n== %s\n' "$*"; }

# The program itself, bounded, for what the tour wants to know.
gpuaas() { timeout --foreground "$COMMAND_SECONDS" "$CLI" "$@"; }

# As a person types it.
show() {
    local word
    printf '\n$ gpuaas'
    for word in "$@"; do
        [[ "$word" != *[[:space:]]* ]] || word="\"$word\""
        printf ' %s' "$word"
    done
    printf '\n'
}

run() {
    show "$@"
    gpuaas "$@" || fail "the command above should have worked; it ended with exit code $?."
}

# A command that must end with this exit code.
refused() {
    local wanted="$1" code=0
    shift
    show "$@"
    gpuaas "$@" || code=$?
    [ "$code" = "$wanted" ] || fail "the command above should have ended with exit code $wanted, not $code."
    say "(exit code $code, as expected)"
}

# Chooses for the commands that follow.
choose() {
    export "$1=$2"
    printf '\n$ export %s=%q\n' "$1" "$2"
}

# A field of the result of a command.
field() {
    local name="$1"
    shift
    gpuaas "$@" -o yaml | sed -n "/^$name: /{s///;s/^['\"]//;s/['\"]\$//;p;q}"
}

# The values of a column of a list, by its name in CSV. None of those that the tour reads has a comma in it.
column() {
    local name="$1"
    shift
    gpuaas "$@" -o csv | awk -F , -v name="$name" 'NR == 1 { for (n = 1; n <= NF; n++) if ($n == name) at = n; next } { print $at }'
}

# Waits until a field of the result of a command has a value.
until_field() {
    local limit="$1" name="$2" wanted="$3" second now=""
    shift 3
    for ((second = 0; second < limit * 2; second++)); do
        now="$(field "$name" "$@")"
        [ "$now" != "$wanted" ] || return 0
        sleep 0.5
    done
    fail "$name of \`gpuaas $*\` is ${now:-nothing} after $limit s, not $wanted."
}

clean_up() {
    local code=$?
    trap - EXIT
    [ -z "$login_pid" ] || kill "$login_pid" 2>/dev/null || true
    if [ -n "$launched" ] && column name allocations list 2>/dev/null | grep -qxF -- "$MACHINE"; then
        gpuaas allocations release "$MACHINE" --yes --wait --timeout 45 >/dev/null 2>&1 ||
            say "the machine may still run: gpuaas allocations list --org ${GPUAAS_ORG:-} -p ${GPUAAS_PROJECT:-}"
    fi
    if [ -n "$window_before" ]; then
        restore_window gpuaas >/dev/null 2>&1 ||
            say "the metering window is still $WINDOW_SECONDS s: gpuaas policy unset $WINDOW --scope platform"
    fi
    [ -z "$key_added" ] || gpuaas ssh-keys delete "$KEY_NAME" >/dev/null 2>&1 || true
    rm -rf -- "$WORK"
    exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# --- signing in ------------------------------------------------------------------------------------------------------

sign_in() {
    if gpuaas auth whoami >/dev/null 2>&1; then
        say "You are already signed in."
    elif [ -n "${GPUAAS_TOUR_PASSWORD:-}" ]; then
        show auth login --no-browser
        sign_in_by_form "${GPUAAS_TOUR_EMAIL:-admin@localhost}" "$GPUAAS_TOUR_PASSWORD" "${GPUAAS_TOUR_NEW_PASSWORD:-}"
    elif [ -t 0 ]; then
        show auth login --no-browser
        "$CLI" auth login --no-browser
    else
        fail "sign in first (gpuaas auth login), or give the password: GPUAAS_TOUR_PASSWORD=… make tour"
    fi
}

# --- parts of the tour -----------------------------------------------------------------------------------------------

# An organization without money: the first such of tour, tour-2, …
enter_org() {
    local known n slug total
    known="$(column slug orgs list)"
    for ((n = 1; n <= MOST_ORGS; n++)); do
        slug=tour
        [ "$n" = 1 ] || slug="tour-$n"
        if ! grep -qxF -- "$slug" <<<"$known"; then
            run platform orgs create "$slug" --name "Tour"
            choose GPUAAS_ORG "$slug"
            return
        fi
        total="$(field total_minor billing balance --org "$slug")"
        if [ "$total" = 0 ]; then
            choose GPUAAS_ORG "$slug"
            run orgs show
            return
        fi
        say "$slug still has a balance from a tour that was interrupted."
    done
    fail "the organizations tour to tour-$MOST_ORGS all have money; give it back (gpuaas platform billing refunds create) and try again."
}

enter_project() {
    if column slug projects list | grep -qxF training; then
        choose GPUAAS_PROJECT training
        run projects show
    else
        run projects create training --name Training
        choose GPUAAS_PROJECT training
    fi
}

add_key() {
    gpuaas ssh-keys delete "$KEY_NAME" >/dev/null 2>&1 || true
    printf '\n$ ssh-keygen -t ed25519 -N "" -C %s -f key\n' "$KEY_NAME"
    ssh-keygen -q -t ed25519 -N "" -C "$KEY_NAME" -f key </dev/null
    key_added=maybe
    run ssh-keys create key.pub
}

shorten_window() {
    window_before="$(field scope policy get "$WINDOW" --scope platform) $(field value policy get "$WINDOW" --scope platform)"
    run policy set "$WINDOW" "$WINDOW_SECONDS" --scope platform
}

restore_window() {
    local before="$window_before"
    window_before=""
    if [ "${before%% *}" = default ]; then
        "$1" policy unset "$WINDOW" --scope platform
    else
        "$1" policy set "$WINDOW" "${before#* }" --scope platform
    fi
}

pay() {
    local topup url
    run billing topup "$AMOUNT" --no-browser
    topup="$(column id billing topups list --limit 1)"
    url="$(field url billing topups show "$topup")"
    browse "$url" >/dev/null
    grep -q SIMULATED "$WORK/page" || fail "payments are not simulated here, and the tour does not spend real money."
    say ""
    say "The checkout page says that it is SIMULATED: no real money moves. The tour presses its button \"Pay\":"
    say "$ curl -X POST $url/pay"
    # Where people are sent back to afterwards is not opened.
    curl --silent --show-error --fail --max-time 20 --noproxy 127.0.0.1,localhost --output /dev/null --data '' "$url/pay" ||
        fail "the checkout page could not be paid."
    until_field "$MONEY_SECONDS" state paid billing topups show "$topup"
    run billing topups show "$topup"
    run billing balance
    [ "$(field total_minor billing balance)" = "$AMOUNT_MINOR" ] || fail "the balance is not what was paid."
}

log_in() {
    if [ -z "$(column hostname nodes list --simulated false --limit 1)" ]; then
        say "All nodes of this installation are simulated: they have no SSH server. A shell: gpuaas terminal $MACHINE"
    else
        say "To log in: gpuaas terminal $MACHINE, or gpuaas ssh $MACHINE (with a key of yours; simulated nodes run no SSH server)."
    fi
}

watch_cost() {
    local start=$SECONDS seen=0 total last available held
    last="$AMOUNT_MINOR"
    while [ "$seen" -lt 3 ]; do
        [ $((SECONDS - start)) -lt "$USE_SECONDS" ] || fail "only $seen charges came within $USE_SECONDS s."
        total="$(field total_minor billing balance)"
        if [ "$total" != "$last" ]; then
            [ "$total" -lt "$last" ] || fail "the balance grew from $last to $total while something ran."
            last="$total"
            seen=$((seen + 1))
            available="$(column available billing balance)" held="$(column held billing balance)"
            printf '  after %2d s: %s available, %s held\n' $((SECONDS - start)) "$available" "$held"
        fi
        sleep 0.5
    done
}

release() {
    run rm "$MACHINE" --yes --wait --timeout 45
    launched=""
    until_field "$MONEY_SECONDS" held_minor 0 billing balance
}

# To the card, so that the next tour begins with nothing again.
give_back() {
    local payment left refund
    payment="$(column id billing payments list --limit 1)"
    left="$(column available billing balance)"
    run platform billing refunds create --payment "$payment" --amount "$left" --reason "the tour is over"
    refund="$(column id billing refunds list --limit 1)"
    until_field "$MONEY_SECONDS" state succeeded billing refunds show "$refund"
    run billing balance
    [ "$(field total_minor billing balance)" = 0 ] || fail "something is left."
}

check_books() {
    local export=ledger.ndjson changed=changed.ndjson
    run ledger list
    run ledger verify
    run ledger export --file "$export"
    run ledger verify --file "$export"
    say ""
    say "The tour changes $AMOUNT to 30.00 in the file, which is one byte:"
    # The first such amount only.
    sed "0,/\"amount_minor\":$AMOUNT_MINOR,/s//\"amount_minor\":3000,/" "$export" >"$changed"
    [ "$(cmp -l "$export" "$changed" | wc -l)" = 1 ] || fail "the export has no such amount."
    refused 1 ledger verify --file "$changed"
}

# --- the tour --------------------------------------------------------------------------------------------------------

"$ROOT/scripts/tools.sh" tour
if [ -z "${GPUAAS_SERVER:-}" ]; then
    [ -f "$CONFIG" ] && pid="$(server_pid)" || fail "nothing runs here. Start it with make up."
    GPUAAS_SERVER="$(setting public_url)"
    GPUAAS_TOUR_EMAIL="${GPUAAS_TOUR_EMAIL:-$(setting admin_email)}"
    program="$(readlink "/proc/$pid/exe")"
    program="${program% (deleted)}"
    GPUAAS_TOUR_CLI="${GPUAAS_TOUR_CLI:-${program%d}}"
fi
CLI="${GPUAAS_TOUR_CLI:-}"
[ -x "$CLI" ] || fail "GPUAAS_TOUR_CLI must name the program gpuaas, of the same version as the server."
CLI="$(realpath "$CLI")"
unset GPUAAS_ORG GPUAAS_PROJECT
# Files that commands name are here.
cd "$WORK"

heading "Who you are"
choose GPUAAS_SERVER "$GPUAAS_SERVER"
sign_in
run auth whoami

heading "An organization that pays, a project that works, a key to log in with"
enter_org
enter_project
add_key

heading "What there is"
run catalog
say ""
say "Usage is charged by the second and posted once per window of a minute. For the tour, a window is $WINDOW_SECONDS s:"
shorten_window

heading "Without money there is no machine"
run billing balance
refused 6 launch "$SKU" --gpus "$GPUS" --name "$MACHINE"

heading "Pay"
pay

heading "Launch"
run allocations explain "$SKU" --gpus "$GPUS"
launched=maybe
run launch "$SKU" --gpus "$GPUS" --name "$MACHINE" --wait --timeout 45
say ""
log_in

heading "Watch the cost"
say "The first charge may take a minute: the worker reads the new length when the current window has ended."
watch_cost
run billing balance
run billing records --limit 3

heading "Release"
release
run allocations list --all --limit 1
run billing usage --by project --by sku

heading "Give back what was not used"
give_back

heading "Check the books"
check_books
run audit verify
run billing statements list

heading "As it was"
restore_window run
say ""
say "Everything succeeded, in $((SECONDS - began)) s."
