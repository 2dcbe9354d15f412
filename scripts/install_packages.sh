#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages of the named sections of packages.txt: install_packages.sh run [test] [check]
# Says nothing and needs no rights when all of them are there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
list=$here/packages.txt

fail() {
  echo "install_packages.sh: $*" >&2
  exit 1
}

[ $# -gt 0 ] || fail "name at least one section of $list: $(grep -o '^\[[a-z]*\]' "$list" | tr -d '[]' | tr '\n' ' ')"
packages=()
for section in "$@"; do
  grep -q "^\[$section\]" "$list" || fail "no section '$section' in $list"
  mapfile -t found < <(awk -v wanted="[$section]" \
    '/^\[/ { inside = ($1 == wanted); next } inside { sub(/#.*/, ""); if (NF) print $1 }' "$list")
  packages+=("${found[@]}")
done

command -v dpkg-query >/dev/null ||
  fail "this is no Debian system. Install the counterparts of these packages by hand, then build as CONTRIBUTING.md says: ${packages[*]}"

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ]; then
  as_root=()
elif command -v sudo >/dev/null; then
  as_root=(sudo)
else
  fail "missing packages, and neither root nor sudo here. Ask an administrator for: apt-get install ${missing[*]}"
fi
echo "Installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"${as_root[@]}" apt-get update >"$log" 2>&1 || { cat "$log" >&2; fail "apt-get update failed"; }
"${as_root[@]}" apt-get install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1 ||
  { cat "$log" >&2; fail "apt-get install failed"; }
