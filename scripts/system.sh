#!/usr/bin/env bash
# Make sure of the system's packages: `scripts/system.sh venv bubblewrap chromium`.
#
# What is missing is installed where that is allowed (as root, or by sudo without a password).
# Elsewhere this names the exact command and fails: nothing is skipped in silence.
set -euo pipefail

say() { echo "system: $*" >&2; }

works() {
    case $1 in
        venv) "${PYTHON:-python3}" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ;;
        bubblewrap) command -v bwrap >/dev/null ;;
        # Asked for its version: on Ubuntu the command can be there and only say that it needs a snap.
        chromium) for name in "${CHROMIUM:-chromium}" chromium-browser google-chrome google-chrome-stable; do
            timeout 60 "$name" --version >/dev/null 2>&1 && return 0
        done
        compgen -G "$HOME/.cache/ms-playwright/chromium-*/chrome-*/chrome" >/dev/null ;;
        *) say "no such thing: $1"; exit 2 ;;
    esac
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

command_for() {
    case $1 in
        venv) echo "apt-get install -y python3 python3-venv" ;;
        bubblewrap) echo "apt-get install -y bubblewrap" ;;
        # Ubuntu ships Chromium as a snap only, which servers and containers often cannot run.
        chromium) if grep -qi '^ID=ubuntu' /etc/os-release; then
            echo "$PWD/.venv/bin/python -m playwright install --with-deps chromium"
        else
            echo "apt-get install -y --no-install-recommends chromium"
        fi ;;
    esac
}

cd "$(dirname "$0")/.."
if [ "$(uname)" != Linux ]; then
    say "grading needs Linux (bubblewrap). README.md has the plain lines for macOS and Windows."
    exit 1
fi
for thing in "$@"; do
    works "$thing" && continue
    install=$(command_for "$thing")
    if [[ $install == apt-get* ]] && ! command -v apt-get >/dev/null; then
        say "$thing is missing, and this is no Debian or Ubuntu: install it with this system's package manager."
        exit 1
    fi
    if ! as_root true; then
        say "$thing is missing and may not be installed from here. Run this, then make again:"
        say "    sudo $install"
        exit 1
    fi
    say "$thing is missing: $install"
    if [[ $install == apt-get* ]]; then
        as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2
    fi
    # shellcheck disable=SC2086
    as_root env DEBIAN_FRONTEND=noninteractive $install >&2
    if ! works "$thing"; then
        say "$thing still does not work after: $install"
        [ "$thing" != venv ] || say "Python 3.11 or newer is needed; PYTHON=/path/to/python make ... names another one."
        exit 1
    fi
done
