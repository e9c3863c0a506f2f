"""The one exception that commands show to people."""

from __future__ import annotations


class CourseError(Exception):
    """Something a person can mend; the message is one line: what is wrong, where, what to do."""
