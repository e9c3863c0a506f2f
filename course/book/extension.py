"""The Sphinx extension behind `jupyter-book build .`: real outputs, honest failures, local scripts.

It works with no preparation outside: it puts kernels into reference mode, keys the execution
cache on all that outputs depend on, serves every script from the book itself, and turns any
warning or failing cell into a failed build that fails again until it is mended.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import filelock
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.errors import SphinxError
from sphinx.util import logging

from course import paths
from course.book import failures, pages
from course.book.digest import digest

LOGGER = logging.getLogger(__name__)

HERE = Path(__file__).resolve().parent
VENDOR = HERE / "vendor"
STATIC = HERE / "static"

WITH_SOLUTIONS = "COURSE_WITH_SOLUTIONS"
"""Environment variable: set to `1`, pages carry each reference solution folded under its exercise."""

UNFINISHED = ".unfinished"
CACHE_PREFIX = ".jupyter_cache-"


class AnotherBuild(SphinxError):
    """Two builds at once would spoil each other's files."""

    category = "Book error"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_config_value("course_with_solutions", False, "env", bool)
    _switch_off_thebe(app)
    app.add_css_file("course.css")
    app.add_js_file("course.js")
    app.connect("config-inited", prepare)
    app.connect("builder-inited", copy_vendor)
    app.connect("env-updated", find_chapters_left_out)
    app.connect("doctree-read", pages.add_solutions)
    app.connect("doctree-resolved", pages.add_chapter_line)
    app.connect("html-page-context", pages.offer_notebook, priority=400)
    app.connect("build-finished", finish, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def prepare(app: Sphinx, config: Config) -> None:
    """Before the environment is loaded: lock, reference mode, cache by digest, local scripts."""
    build_folder = Path(app.outdir).parent
    build_folder.mkdir(parents=True, exist_ok=True)
    # Kept on the application, which both ends of a build are given.
    app.course_lock = _lock(build_folder)  # type: ignore[attr-defined] # ours, not Sphinx's
    root = Path(app.srcdir)
    _set_kernel_environment(root)

    caches = root / "_build"
    current = caches / (CACHE_PREFIX + digest(root))
    for old in caches.glob(CACHE_PREFIX + "*"):
        if old != current:
            shutil.rmtree(old, ignore_errors=True)
    config.nb_execution_cache_path = str(current)
    config.nb_execution_mode = "cache"
    config.nb_execution_raise_on_error = True
    config.nitpicky = True
    config.course_with_solutions = os.environ.get(WITH_SOLUTIONS) == "1"

    # Relative to `_static`; Jupyter Book would load anything inside `_static` on every page.
    config.nb_ipywidgets_js = {"../vendor/require.js": {}, "course-widgets.js": {}, "../vendor/embed-amd.js": {}}
    config.mathjax_path = "../vendor/mathjax/tex-mml-chtml.js"
    config.html_static_path.append(str(STATIC))

    unfinished = build_folder / UNFINISHED
    if unfinished.exists():
        # The last build failed or was killed: forget what it read, so that it warns again.
        (Path(app.doctreedir) / "environment.pickle").unlink(missing_ok=True)
    unfinished.touch()


def _lock(build_folder: Path) -> filelock.BaseFileLock:
    lock = filelock.FileLock(build_folder / ".building")
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        raise AnotherBuild(f"another build of this book is running in {build_folder}; wait for it to end") from None
    return lock


def _set_kernel_environment(root: Path) -> None:
    """Kernels inherit this process's environment: reference mode, and the root on the path."""
    os.environ[paths.REFERENCE_MODE] = "1"
    others = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != str(root)]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(root), *others])


def _switch_off_thebe(app: Sphinx) -> None:
    """Jupyter Book always loads sphinx-thebe, which names an outside server on each page."""
    for listeners in app.events.listeners.values():
        listeners[:] = [entry for entry in listeners if entry.handler.__module__ != "sphinx_thebe"]
    registered = app.registry.css_files
    registered[:] = [entry for entry in registered if entry[0] != "sphinx-thebe.css"]


def copy_vendor(app: Sphinx) -> None:
    """Put the vendored scripts beside the pages."""
    if app.builder.format == "html":
        skip = shutil.ignore_patterns("README.md")
        shutil.copytree(VENDOR, Path(app.outdir) / "vendor", dirs_exist_ok=True, ignore=skip)


def find_chapters_left_out(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Warn about a chapter file that `_toc.yml` does not name: it would be missing in silence."""
    for path in sorted((Path(app.srcdir) / "chapters").glob("*.md")):
        name = f"chapters/{path.stem}"
        if pages.chapter_path(app, name) and name not in env.found_docs:
            LOGGER.warning("chapters/%s is not in _toc.yml: add it, or the book lacks it", path.name)
    return []


def finish(app: Sphinx, exception: Exception | None) -> None:
    """Fail on warnings and explain a failed cell; remember a success."""
    if exception is None and app._warncount:
        # Raised here, Sphinx forgets the environment: the next build reads, and warns, again.
        raise failures.Warned(app._warncount)
    if exception is None:
        (Path(app.outdir).parent / UNFINISHED).unlink(missing_ok=True)
    else:
        failures.explain(app, exception)
    app.course_lock.release()  # type: ignore[attr-defined] # set by `prepare`
