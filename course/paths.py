"""Where things are: the repository that instructors keep, or a student's workspace.

Both hold `lib/` and `course/` side by side. A repository also holds `chapters/*.md` and
`solutions/`; a workspace holds the chapters as notebooks at its top.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CHAPTERS = ROOT / "chapters"
SOLUTIONS = ROOT / "solutions"
LIB = ROOT / "lib"
TESTS = ROOT / "tests"
CLASSROOM = Path(os.environ.get("COURSE_CLASSROOM", ROOT / "classroom")).resolve()

REFERENCE_MODE = "COURSE_REFERENCE"
"""Environment variable: set to `1`, exercise cells and `lib` use the reference solutions."""


def is_workspace() -> bool:
    """True in a student's workspace, False in the repository."""
    return not CHAPTERS.is_dir()


def make_importable() -> None:
    """Let `import lib`, and in the repository `import tests`, mean those here, wherever Python was started."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))


def in_reference_mode() -> bool:
    """True when `%%lib` cells and `import lib` must answer with the reference solutions."""
    return os.environ.get(REFERENCE_MODE) == "1"
