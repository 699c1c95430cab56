#!/bin/sh
# Prints the Pythons from 3.11 on that can make an environment, oldest first, one a line: its version and its path.
# Looks in PATH, /usr/bin and pyenv's folder.
for folder in $(echo "$PATH" | tr ':' ' ') /usr/bin "$HOME"/.pyenv/versions/*/bin; do
  for python in "$folder"/python3 "$folder"/python3.[1-9][0-9]; do
    [ -x "$python" ] && "$python" -c '
import sys, ensurepip, venv
if sys.version_info >= (3, 11) and sys.prefix == sys.base_prefix:
    print("%d.%d.%d" % sys.version_info[:3], sys.executable)' 2>/dev/null
  done
done | sort -V -u
