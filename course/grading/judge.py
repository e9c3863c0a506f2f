"""The judge: nbgrader's autograde with hidden tests beyond a wall in place of running the notebook.

`Intake` reads what was handed in, `Judge` asks for a verdict and writes the output of every graded
cell itself. No cell of a submission is ever run in this process. nbgrader gives a graded cell that
has no output full marks, so whatever goes wrong ends in an output that says so and is worth 0.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbconvert.exporters import NotebookExporter
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade
from traitlets import Bool

from course import chapters, paths
from course.chapters import Chapter
from course.errors import CourseError
from course.grading import files, intake, report
from course.grading.intake import Refused, Submission

if TYPE_CHECKING:
    from course.grading.verdict import Verdict

REFUSED = "course_refused"
"""Key in the clean notebook's metadata: why the submission was refused. Only intake writes it."""


# Verdicts: kept by what was judged and by what judged it


def secret() -> bytes:
    """The classroom's own secret, made at first use; random inputs of hidden tests derive from it."""
    path = paths.CLASSROOM / "secret.key"
    if not path.exists():
        files.create(path, secrets.token_bytes(32), mode=0o600)
    return path.read_bytes()


def fingerprint(submission: Submission) -> str:
    """Digest of what is judged: equal answers get equal tests."""
    judged = [submission.chapter, sorted(submission.cells.items()), submission.extra]
    return hashlib.sha256(json.dumps(judged).encode()).hexdigest()


def seed(submission: Submission) -> int:
    """The seed of the hidden tests' inputs: nobody can know it, and it stays the same."""
    digest = hmac.new(secret(), fingerprint(submission).encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:7], "big")


# Files of this package that play no part in a verdict; a change to any other makes verdicts anew.
NOT_JUDGING = set(
    "archives classroom collect commands exchange export feedback files guard judge pool report roster run "
    "sample_class specimens trial".split()
)


def rules(chapter: Chapter) -> str:
    """Digest of everything that judges: chapter, hidden tests, the `lib` given with it, the grader's code."""
    sources = [chapter.path, *sorted((paths.TESTS / "hidden").glob(f"test_{chapter.name}*.py"))]
    grader = sorted((paths.ROOT / "course" / "grading").glob("*.py"))
    sources += [path for path in grader if path.stem not in NOT_JUDGING]
    sources += [paths.ROOT / "course" / f"{name}.py" for name in ("chapters", "definitions", "modules")]
    modules = chapters.names()
    sources += [paths.SOLUTIONS / f"{name}.py" for name, chapter_id in modules.items() if chapter_id < chapter.id]
    sources += sorted(path for path in paths.LIB.glob("*.py") if path.stem not in modules)
    digest = hashlib.sha256(version("torch").encode())
    for path in sources:
        content = path.read_bytes()
        digest.update(f"{path.parent.name}/{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def verdict_key(submission: Submission, judged_by: str, unsafe: bool) -> str:
    """Name of the file that holds a verdict; one made without the wall never stands for one made with it."""
    parts = (fingerprint(submission), judged_by, "no wall" if unsafe else "wall")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]


def verdict_path(key: str) -> Path:
    """Where the verdict with this key is kept."""
    return paths.CLASSROOM / "verdicts" / f"{key}.json"


def stored_verdict(key: str) -> Verdict | None:
    """The verdict kept under this key, if there is a whole one."""
    from course.grading.verdict import Verdict

    try:
        return Verdict.from_json(verdict_path(key).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, OSError):
        return None  # damaged: judge again


def judge(submission: Submission, unsafe: bool = False) -> Verdict:
    """The verdict on a submission: the one that is kept, or a new one, which is then kept."""
    from course.grading.verdict import judge_cells

    key = verdict_key(submission, rules(chapters.find(submission.chapter)), unsafe)
    verdict = stored_verdict(key)
    if verdict is None:
        verdict = judge_cells(submission.chapter, submission.cells, submission.extra, seed(submission), unsafe=unsafe)
        files.write(verdict_path(key), verdict.to_json())
    return verdict


# nbgrader's two passes


def read_submission(path: Path, chapter_id: str, root: Path) -> NotebookNode:
    """The clean notebook of a submission; of a refused one, a blank notebook that carries the reason."""
    chapter = chapters.find(chapter_id)
    try:
        return intake.read(path, chapter, root).notebook
    except Refused as refused:
        notebook = intake.blank(chapter).notebook
        notebook.metadata[REFUSED] = str(refused)
        return notebook


class Intake(NotebookExporter):
    """Reads a submission for nbgrader through intake, so that no file can stop a batch."""

    def from_filename(self, filename: str, resources: dict[str, Any] | None = None, **kw: Any) -> Any:
        """Convert a notebook: as handed in by nbgrader's first pass, as cleaned by its second."""
        if not getattr(self.parent, "_sanitizing", True):
            return super().from_filename(filename, resources=resources, **kw)
        resources = resources if resources is not None else {}
        path = Path(filename)
        resources["metadata"] = {"name": path.stem, "path": str(path.parent)}
        chapter_id, student = resources["nbgrader"]["assignment"], resources["nbgrader"]["student"]
        root = Path(self.parent.coursedir.root)  # type: ignore[union-attr] # always nbgrader's Autograde here
        notebook = read_submission(path, chapter_id, root)
        if REFUSED in notebook.metadata:
            self.log.warning("%s, %s: refused: %s", student, chapter_id, notebook.metadata[REFUSED])
        return self.from_notebook_node(notebook, resources=resources, **kw)


class Judge(NbGraderPreprocessor):
    """Stands where nbgrader's Execute stood: writes each graded cell's marks and reasons."""

    unsafe = Bool(False, help="Judge without the sandbox. For your own work only.").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        """Judge a clean notebook and write the outputs of its graded cells."""
        chapter = chapters.find(resources["nbgrader"]["assignment"])
        _check_version(nb, chapter)
        try:
            problem, outputs = self._outputs(nb, chapter)
        except CourseError:
            raise  # nothing was judged: no sandbox, a full disk; no mark is touched
        except Exception as error:
            self.log.exception("%s: the grader failed", resources["nbgrader"]["student"])
            problem, outputs = _grader_failed(error), {}
        write_outputs(nb, outputs, problem)
        return nb, resources

    def _outputs(self, nb: NotebookNode, chapter: Chapter) -> tuple[str | None, Mapping[str, list[NotebookNode]]]:
        reason = nb.metadata.get(REFUSED)
        if isinstance(reason, str):
            return f"Not graded: {reason}", {}
        verdict = judge(intake.from_notebook(nb, chapter), unsafe=self.unsafe)
        return verdict.problem, report.outputs(verdict, chapter)


def _check_version(nb: NotebookNode, chapter: Chapter) -> None:
    """The marks of one version of a chapter mean nothing against the points of another.

    Raises:
        CourseError: the cells, which have the gradebook's points by now, are not those of the chapter.
    """
    own = [cell.metadata.nbgrader for cell in nb.cells if is_grade(cell)]
    if {meta["grade_id"]: meta["points"] for meta in own} != {e.check_id: e.points for e in chapter.exercises}:
        raise CourseError(
            f"the gradebook has another version of chapter {chapter.id}; run `course release {chapter.id[:2]}` first"
        )


def _grader_failed(error: Exception) -> str:
    return f"The grader failed on this submission ({type(error).__name__}); tell your instructor."


def write_outputs(nb: NotebookNode, outputs: Mapping[str, list[NotebookNode]], problem: str | None) -> None:
    """Give every graded cell its outputs; a cell that has none of its own gets 0 and the reason."""
    for cell in nb.cells:
        if cell.cell_type != "code":
            continue
        cell.outputs = []
        cell.execution_count = None
        if is_grade(cell):
            grade_id = cell.metadata.nbgrader["grade_id"]
            cell.outputs = outputs.get(grade_id) or report.nothing(
                problem or f"The grader has no result for {grade_id}; tell your instructor."
            )
