"""A very small SDLC command: ``feature init NAME`` notes a feature in the repository it stands in."""

from __future__ import annotations

import sys
from pathlib import Path

match sys.argv[1:]:
    case ["init", name]:
        note = Path("features", f"{name}.md")
        note.parent.mkdir(exist_ok=True)
        note.write_text(f"# {name}\n\nplanned\n")
        print(f"noted {note}")
    case other:
        print(f"there is no feature {' '.join(other)}", file=sys.stderr)
        sys.exit(64)
