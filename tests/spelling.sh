#!/usr/bin/env bash
# Checks the spelling of text, comments and names with typos (exceptions: typos.toml). Installs it by name from PyPI, one
# pinned version, into .cache/typos.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

package=typos==1.52.0
folder=.cache/typos

if [[ "$(cat "$folder/installed" 2>/dev/null)" != "$package" ]]; then
  rm -rf "$folder"
  if ! { python3 -m venv "$folder" && "$folder/bin/pip" install --quiet --disable-pip-version-check "$package"; }; then
    echo "spelling: skipped, $package could not be installed" >&2
    [[ ${CI:-} != true ]] || exit 1
    exit 0
  fi
  echo "$package" >"$folder/installed"
fi
"$folder/bin/typos" --format brief
