"""nbgrader's configuration: read by `nbgrader`, by the formgrader page and by `course grade`.

Environment:
    COURSE_CLASSROOM   the folder with source, release, submitted, autograded, feedback
    COURSE_DB_URL      the gradebook, such as postgresql://user@host/gradebook (SQLite by default)
    COURSE_ID          the course's name in nbgrader's exchange
    COURSE_EXCHANGE    the exchange's folder, shared by a JupyterHub's users
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

# After the path is set, since a plain `nbgrader` command knows nothing of this folder: hence E402.
from nbgrader.converters import GenerateAssignment  # noqa: E402
from nbgrader.preprocessors import ClearSolutions  # noqa: E402

from course import paths  # noqa: E402
from course.grading import guard  # noqa: E402

c = get_config()  # noqa: F821 (traitlets puts it there)
guard.install()
guard.configure(c)

c.CourseDirectory.root = str(paths.CLASSROOM)
c.CourseDirectory.course_id = os.environ.get("COURSE_ID", "architecture-ideas-that-won")
if "COURSE_DB_URL" in os.environ:
    c.CourseDirectory.db_url = os.environ["COURSE_DB_URL"]
if "COURSE_EXCHANGE" in os.environ:
    c.Exchange.root = os.environ["COURSE_EXCHANGE"]

# The chapters hold stubs already, and an answer must not be cut out of a student's cell.
c.GenerateAssignment.preprocessors = [
    step for step in GenerateAssignment.preprocessors.default_args[0] if step is not ClearSolutions
]

# Intake builds a clean notebook; nbgrader's sanitizers then compare it with the gradebook.
c.Autograde.exporter_class = "course.grading.judge.Intake"
c.Autograde.autograde_preprocessors = [
    "course.grading.judge.Judge",
    "nbgrader.preprocessors.SaveAutoGrades",
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
]

# A student's Markdown is shown to others: no markup of its own gets through, here and in formgrader.
c.GenerateFeedback.exporter_class = "course.grading.feedback.FeedbackExporter"
c.GenerateFeedback.preprocessors = [
    "nbgrader.preprocessors.GetGrades",
    "course.grading.feedback.OwnWork",
    "nbconvert.preprocessors.CSSHTMLHeaderPreprocessor",
    "course.grading.feedback.Style",
]
c.TemplateExporter.filters = {"markdown2html": "course.grading.feedback.markdown_to_html"}
c.HTMLExporter.sanitize_html = True
c.FormgradeExtension.debug = False  # it would print this configuration on the page


c.ExportApp.plugin_class = "course.grading.export.SafeCsv"
