"""Prints what an extra of this package needs, one line each: for installing it without touching the package itself.

python tools/extras.py spark lake
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def main(names: list[str]) -> int:
    """The requirements of these extras."""
    project = Path(__file__).resolve().parents[1] / "pyproject.toml"
    extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    for name in names:
        print(*extras[name], sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
