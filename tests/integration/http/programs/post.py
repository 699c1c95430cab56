"""Posts its standard input in chunks by requests, which streams what a generator yields: `post.py URL CONTENT_TYPE`."""

from __future__ import annotations

import os
import sys

import requests

pieces = iter(lambda: os.read(sys.stdin.fileno(), 1000), b"")
answer = requests.post(sys.argv[1], data=pieces, headers={"Content-Type": sys.argv[2]}, timeout=60)
sys.stdout.write(f"{answer.status_code}\n{answer.text}")
