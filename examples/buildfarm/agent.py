"""A minimal agent: reads a prompt from standard input and writes a page to the working directory."""

from __future__ import annotations

import re
import sys
from pathlib import Path

prompt = sys.stdin.read().strip()
print(f"asked to {prompt}", flush=True)
match = re.fullmatch(r"write a page about ([\w ]+?)(?:, in (\w+))?", prompt)
if match is None:
    print(f"I can only write a page, not: {prompt}", file=sys.stderr)
    sys.exit(64)  # EX_USAGE of sysexits.h: the request is invalid, so retrying is useless
topic, colour = match[1], match[2] or "black"
page = Path(f"{topic.replace(' ', '-')}.html")
page.write_text(f'<h1 style="color: {colour}">{topic}</h1>\n')
print(f"wrote {page}", flush=True)
