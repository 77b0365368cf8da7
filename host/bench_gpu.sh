#!/bin/sh
# `pagelm bench-gpu` on a machine that cannot reach anything: pack here, carry the repository over, run there.
#
#   host/bench_gpu.sh pack        wheels into build/bench_gpu, for the Pythons in $PYTHONS (default: this one's)
#   host/bench_gpu.sh run [ARGS]  a virtual environment from these wheels alone, then `pagelm bench-gpu ARGS`
#
# PYTHON chooses the interpreter. The machine needs Python 3.11 or newer with venv, and a Vulkan driver.
set -eu
REPOSITORY=$(cd "$(dirname "$0")/.." && pwd)
PYTHON=${PYTHON:-python3}
HERE=$REPOSITORY/build/bench_gpu

case ${1:-} in
pack)
    cd "$REPOSITORY"
    rm -rf build/lib build/bdist.* "$HERE"  # setuptools ships again what was deleted since
    mkdir -p "$HERE"
    "$PYTHON" -m pip wheel -q --no-deps -w "$HERE" .
    for version in ${PYTHONS:-$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')}; do
        "$PYTHON" -m pip download -q --only-binary=:all: --python-version "$version" -d "$HERE" \
            "$(ls "$HERE"/pagelm-*.whl)[native,oracle]"
    done
    du -sh "$HERE"
    ;;
run)
    shift
    [ -d "$HERE" ] || { echo "bench_gpu.sh: there is no $HERE; run: host/bench_gpu.sh pack" >&2; exit 2; }
    venv=$(mktemp -d)
    trap 'rm -rf "$venv"' EXIT
    "$PYTHON" -m venv "$venv"
    "$venv/bin/python" -m pip install -q --no-index --find-links "$HERE" 'pagelm[native,oracle]'
    "$venv/bin/pagelm" bench-gpu "$@"
    ;;
*)
    sed -n '2,7s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
