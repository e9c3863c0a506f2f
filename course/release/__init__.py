"""From the chapters' sources to what students get."""

from __future__ import annotations

from course.release.releasing import release

__all__ = ["release"]
