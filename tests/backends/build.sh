#!/usr/bin/env bash
# Build the real back ends that tests run as processes, once, into a cache outside the checkout.
#   tests/backends/build.sh jaeger            prints the path of the binary; needs Go
#   tests/backends/build.sh --where jaeger    prints the path only, whether it is built or not
# The cache is $RAGTRACE_BACKENDS, else ${XDG_CACHE_HOME:-~/.cache}/ragtrace/backends.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${RAGTRACE_BACKENDS:-${XDG_CACHE_HOME:-$HOME/.cache}/ragtrace/backends}
usage="usage: build.sh [--where] jaeger"
where_only=
if [ "${1:-}" = --where ]; then where_only=yes; shift; fi
name=${1:?$usage}

build_go() { # folder, package: the binary's name carries a digest of its pinned modules
  local pinned binary
  pinned=$(cat "$here/$1/go.mod" "$here/$1/go.sum" | sha256sum | cut -c1-12)
  binary=$cache/$1-$pinned
  if [ -z "$where_only" ] && [ ! -x "$binary" ]; then
    command -v go >/dev/null || { echo "building $1 needs Go: https://go.dev/doc/install" >&2; exit 1; }
    mkdir -p "$cache"
    echo "building $1 (about ten minutes the first time) ..." >&2
    (cd "$here/$1" && go build -buildvcs=false -o "$binary.partial" "$2" >&2)
    mv "$binary.partial" "$binary"
  fi
  echo "$binary"
}

case $name in
  jaeger) build_go jaeger github.com/jaegertracing/jaeger/cmd/jaeger ;;
  *) echo "unknown back end: $name ($usage)" >&2; exit 2 ;;
esac
