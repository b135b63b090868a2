"""A minimal SDLC command: ``feature init NAME`` records a feature in the repository in the working directory."""

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
