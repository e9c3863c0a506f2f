"""`course serve`: the built book on this machine, for a browser."""

from __future__ import annotations

import errno
import functools
import http.server
import sys
from pathlib import Path
from typing import Any

from course import paths
from course.errors import CourseError

PAGES = paths.ROOT / "_build" / "html"


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files and stays quiet; browsers ask again after each new build."""

    def end_headers(self) -> None:
        """Let no browser keep a page of an older build."""
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing for each request."""


def server(port: int, pages: Path | None = None) -> http.server.ThreadingHTTPServer:
    """A server of the pages on 127.0.0.1, not yet running; port 0 takes a free one.

    Raises:
        CourseError: there are no pages, or the port is taken.
    """
    folder = pages or PAGES
    if not (folder / "index.html").is_file():
        raise CourseError(f"there is no book in {folder}: build it first with `course book`")
    try:
        handler = functools.partial(Handler, directory=str(folder))
        return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES) or getattr(error, "winerror", None) in (10013, 10048):
            raise CourseError(
                f"port {port} is taken or not allowed: choose another, for example `course serve --port {port + 1}`"
            ) from None
        raise


def serve(port: int = 8000) -> None:
    """Serve the book until Ctrl+C."""
    with server(port) as running:
        print(f"The book: http://127.0.0.1:{running.server_port}/   (Ctrl+C stops it)")
        sys.stdout.flush()
        try:
            running.serve_forever()
        except KeyboardInterrupt:
            print()
