"""A very small agent: reads what is wanted on its standard input, and writes a page about it where it stands."""

from __future__ import annotations

import re
import sys
from pathlib import Path

prompt = sys.stdin.read().strip()
print(f"asked to {prompt}", flush=True)
match = re.fullmatch(r"write a page about ([\w ]+?)(?:, in (\w+))?", prompt)
if match is None:
    print(f"I can only write a page, not: {prompt}", file=sys.stderr)
    sys.exit(64)  # as sysexits.h has it: what was asked for cannot be, so no retry is of use
topic, colour = match[1], match[2] or "black"
page = Path(f"{topic.replace(' ', '-')}.html")
page.write_text(f'<h1 style="color: {colour}">{topic}</h1>\n')
print(f"wrote {page}", flush=True)
