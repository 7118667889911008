# Sourced by demo and test: makes the checkout's own virtual environment, or brings it up to date; sets $python.
# Needs Python >= 3.11 and PyPI, nothing else.

find_python() {
    for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11 python; do
        [ -n "$candidate" ] || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return 0
        fi
    done
    echo "rmqha needs Python 3.11 or newer; none was found. Install one, or name it: PYTHON=/path/to/python $0" >&2
    return 1
}

prepare_venv() {
    venv=$root/.venv
    python=$venv/bin/python
    wanted=$(cksum <"$root/setup.cfg" && cksum <"$root/pyproject.toml")
    if [ -x "$python" ] && [ "$(cat "$venv/rmqha-installed" 2>/dev/null)" = "$wanted" ]; then
        return 0
    fi
    base=$(find_python) || return 1
    echo "Preparing $venv (once; some minutes, PySpark and a Java runtime are large) ..." >&2
    if ! "$base" -m venv "$venv"; then
        echo "'$base -m venv' failed. On Debian and Ubuntu: apt-get install python3-venv" >&2
        return 1
    fi
    if ! "$python" -m pip install --quiet --disable-pip-version-check --use-pep517 \
        --editable "$root[dev,spark]"; then
        echo "pip could not install rmqha's dependencies; is PyPI (or your mirror, see 'pip config list') reachable?" >&2
        return 1
    fi
    printf '%s' "$wanted" >"$venv/rmqha-installed"
}
