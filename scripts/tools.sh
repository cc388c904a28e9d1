#!/usr/bin/env bash
# Makes sure that the programs we need are there, and installs what is missing. Does nothing, and needs no
# network, when all is there.
#
#   scripts/tools.sh [rust] [postgres] [schemathesis] [stripe] [aiosmtpd] [seaweedfs] [oidc] [openssl] [poppler] [nodes] [bubblewrap] [tour] [browser] [web] [wrk] [terminado] [mutants]
#
# Nothing named: all but wrk, terminado and mutants, which only `make bench` and `make mutants` need.
#
# The system's packages come from its package manager; what only the tests need goes into .tools, pinned by
# version and hash in scripts/tools/.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

TOOLS="$ROOT/.tools"
PINS="$ROOT/scripts/tools"
ASKED=("$@")
[ "$#" -gt 0 ] || ASKED=(rust postgres schemathesis stripe aiosmtpd seaweedfs oidc openssl poppler nodes bubblewrap tour browser web)

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

# Installs Debian packages, or says what to install.
apt_install() {
    local what="$1"
    shift
    local advice="$what is missing. Install it (on Debian or Ubuntu: sudo apt-get install $*) and try again."
    command -v apt-get >/dev/null || fail "$advice"
    [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null || fail "$advice"
    say "installing $what"
    if ! apt-cache show "$1" >/dev/null 2>&1; then
        as_root apt-get update -qq || fail "the package lists could not be read. $advice"
    fi
    local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends
        -o Dpkg::Options::=--force-confold "$@")
    if ! as_root "${install[@]}" >/dev/null; then
        # The lists may be too old for what the mirror has now.
        as_root apt-get update -qq
        as_root "${install[@]}" >/dev/null || fail "$advice"
    fi
}

rust() {
    # Some crates build C code.
    command -v cc >/dev/null || apt_install "a C compiler" gcc libc6-dev
    command -v cargo >/dev/null && return
    [ -x "$HOME/.cargo/bin/cargo" ] && fail "cargo is installed but not in PATH: run . \"\$HOME/.cargo/env\" first."
    fail "Rust is missing. Install rustup; rust-toolchain.toml picks the version."
}

has_postgres() {
    local dir
    for dir in /usr/lib/postgresql/*/bin ${PATH//:/ }; do
        [ -x "$dir/postgres" ] && [ -x "$dir/initdb" ] && return
    done
    return 1
}

postgres() {
    if ! has_postgres; then
        # We run our own cluster: the package shall not make and start one.
        if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
            mkdir -p /etc/postgresql-common
            echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
        fi
        apt_install "PostgreSQL (15 or newer)" postgresql
        has_postgres || fail "PostgreSQL was installed but its programs are not in /usr/lib/postgresql or PATH."
    fi
    command -v pg_dump >/dev/null || apt_install "the PostgreSQL client" postgresql-client
}

# Whether directory $1 holds what the pins $2… ask for.
is_current() {
    local dir="$1"
    shift
    [ -f "$dir/.pins" ] && [ "$(cat "$dir/.pins")" = "$(cat "$@" | sha256sum)" ]
}

# Makes the Python environment $1 of the pins $2, which are for $3; $4 says who needs it.
python_environment() {
    local dir="$TOOLS/$1" pins="$PINS/$2" what="$3" needed_by="$4"
    is_current "$dir" "$pins" && [ -x "$dir/bin/python" ] && return
    command -v python3 >/dev/null || apt_install "Python" python3 python3-venv
    python3 -c 'import ensurepip' 2>/dev/null || apt_install "Python's venv" python3-venv
    say "installing $what into .tools/$1"
    rm -rf "$dir"
    mkdir -p "$TOOLS"
    python3 -m venv "$dir"
    "$dir/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r "$pins" ||
        fail "$what could not be installed from the Python package index; $needed_by."
    cat "$pins" | sha256sum >"$dir/.pins"
}

# The Python programs and libraries of the tests: schemathesis, Stripe's own SDK for its wire format, a mail server, and an S3
# service.
python_tools() {
    python_environment venv requirements.txt "schemathesis, the Stripe SDK, aiosmtpd and SeaweedFS" \
        "the tests of the API, of payments, of mail and of object storage need them"
}

# The programs for Node.js: an OpenID provider, and what drives a browser.
node_tools() {
    local dir="$TOOLS/npm"
    is_current "$dir" "$PINS/package.json" "$PINS/package-lock.json" && [ -d "$dir/node_modules/playwright-core" ] && return
    command -v node >/dev/null || apt_install "Node.js" nodejs npm
    command -v npm >/dev/null || apt_install "npm" npm
    say "installing oidc-provider and playwright-core into .tools/npm"
    rm -rf "$dir"
    mkdir -p "$dir"
    cp "$PINS/package.json" "$PINS/package-lock.json" "$dir/"
    (cd "$dir" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) ||
        fail "oidc-provider and playwright-core could not be installed from the npm registry; the tests of signing in and of pages need them."
    cat "$PINS/package.json" "$PINS/package-lock.json" | sha256sum >"$dir/.pins"
}

# Tests read the text of statements with it.
poppler() {
    type -P pdftotext >/dev/null || apt_install "poppler-utils" poppler-utils
}

# Tests make certificates with it.
openssl() {
    type -P openssl >/dev/null || apt_install "OpenSSL" openssl
}

# Test nodes are small machines in namespaces: see crates/node/node-agent/tests/drivers and the tests of gpuaasd.
nodes() {
    type -P ip >/dev/null || apt_install "iproute2" iproute2
    type -P ssh >/dev/null || apt_install "an SSH client" openssh-client
    type -P rsync >/dev/null || apt_install "rsync" rsync
    type -P git >/dev/null || apt_install "git" git
    type -P unshare >/dev/null || apt_install "util-linux" util-linux
    type -P mmdebstrap >/dev/null || apt_install "mmdebstrap" mmdebstrap
    type -P systemd-nspawn >/dev/null || apt_install "systemd-nspawn" systemd-container
    # Stands between a program and the clock, for nodes whose clock is off.
    compgen -G "/usr/lib/*/faketime/libfaketime.so.1" >/dev/null || apt_install "libfaketime" libfaketime
    "$ROOT/scripts/node-rootfs.sh" >/dev/null
}

# Confines the shells of simulated nodes. Tests edit a file in one.
bubblewrap() {
    type -P bwrap >/dev/null || apt_install "bubblewrap" bubblewrap
    type -P vi >/dev/null || apt_install "vi" vim-tiny
}

# What `make tour` types besides our own commands.
tour() {
    type -P curl >/dev/null || apt_install "curl" curl
    type -P ssh-keygen >/dev/null || apt_install "an SSH client" openssh-client
}

# Meets the pages that the documents for newcomers lead to.
browser() {
    [ -x /usr/bin/chromium ] || apt_install "Chromium" chromium
    node_tools
}

# The pages that become part of gpuaasd.
web() {
    command -v node >/dev/null || apt_install "Node.js" nodejs npm
    command -v npm >/dev/null || apt_install "npm" npm
    "$ROOT/scripts/web.sh"
}

wrk() {
    type -P wrk >/dev/null || apt_install "wrk" wrk
}

# Another terminal in the browser, beside which ours is measured.
terminado() {
    python_environment venv-bench requirements-bench.txt terminado "make bench needs it"
}

MUTANTS_VERSION=27.1.0

mutants() {
    local program="$TOOLS/cargo/bin/cargo-mutants"
    [ -x "$program" ] && [ "$("$program" mutants --version)" = "cargo-mutants $MUTANTS_VERSION" ] && return
    rust
    say "installing cargo-mutants $MUTANTS_VERSION into .tools/cargo"
    cargo install --quiet --locked --root "$TOOLS/cargo" --version "$MUTANTS_VERSION" cargo-mutants ||
        fail "cargo-mutants could not be installed from the registry; make mutants needs it."
}

for tool in "${ASKED[@]}"; do
    case "$tool" in
    rust | postgres | openssl | poppler | nodes | bubblewrap | tour | browser | web | wrk | terminado | mutants) "$tool" ;;
    oidc) node_tools ;;
    schemathesis | stripe | aiosmtpd | seaweedfs) python_tools ;;
    *) fail "there is no tool $tool; choose from rust, postgres, schemathesis, stripe, aiosmtpd, seaweedfs, oidc, openssl, poppler, nodes, bubblewrap, tour, browser, web, wrk, terminado, mutants." ;;
    esac
done
