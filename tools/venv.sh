#!/bin/sh
# Make the environment $1 with what the lock $2 lists. What this machine lacks for it is named with the
# package that brings it; nothing is installed outside of the environment.
set -eu

venv=$1
lock=$2
python=${PYTHON:-python3}

lacks() {
    echo "runkit: $1; on Debian and Ubuntu: apt-get install $2" >&2
    exit 2
}

command -v "$python" >/dev/null || lacks "$python is not installed" "python3 python3-venv"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    lacks "$("$python" --version) is too old, 3.11 or later is needed; name another with make PYTHON=..." "python3.11 python3.11-venv"
"$python" -c 'import ensurepip, venv' 2>/dev/null || lacks "this Python cannot make environments" "python3-venv"

[ -x "$venv/bin/pip" ] || "$python" -m venv --clear "$venv"
echo "installing what $lock lists into $venv ..." >&2
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$lock"
