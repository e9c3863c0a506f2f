"""Fetch the scripts that pages need into `course/book/vendor/`: `python -m course.book.refresh_vendor`.

Needs npm. Packages, versions and files are listed here and nowhere else; the README beside the
files is written by this module, with a checksum of each.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

VENDOR = Path(__file__).resolve().parent / "vendor"

TEX_EXTENSIONS = ("bbox", "boldsymbol", "braket", "cancel", "color", "enclose", "mathtools", "unicode", "upgreek")

# The icon fonts of the widget manager's own style sheet: solid, regular, brands.
ICON_FONTS = ("1551f4f60c37af51121f.woff2", "7a3337626410ca2f4071.woff2", "d878b0a6a1144760244f.woff2")

# npm package, version -> {file or folder in the package: place under vendor/}
PACKAGES: dict[str, dict[str, str]] = {
    "requirejs@2.3.7": {"require.js": "require.js"},
    "@jupyter-widgets/html-manager@1.0.14": {
        "dist/embed-amd.js": "embed-amd.js",
        "LICENSE": "LICENSE-html-manager",
        **{f"dist/{font}": f"@jupyter-widgets/html-manager/dist/{font}" for font in ICON_FONTS},
    },
    "mathjax@3.2.2": {
        "es5/tex-mml-chtml.js": "mathjax/tex-mml-chtml.js",
        "es5/output/chtml/fonts/woff-v2": "mathjax/output/chtml/fonts/woff-v2",
        **{
            # Commands that MathJax loads only when a page uses them.
            f"es5/input/tex/extensions/{name}.js": f"mathjax/input/tex/extensions/{name}.js"
            for name in TEX_EXTENSIONS
        },
        "LICENSE": "mathjax/LICENSE",
    },
}

README = """# Scripts that the pages need

Served by the book itself, so that reading it asks nothing of any other server. Unchanged files of
these npm packages; `course/book/refresh_vendor.py` lists packages, versions and files, and fetches
them again with `npm pack`:

    python -m course.book.refresh_vendor

| package | version | licence | used for |
|---|---|---|---|
{packages}

| file | sha256 |
|---|---|
{files}
"""

USES = {
    "requirejs": "loading the widget manager",
    "@jupyter-widgets/html-manager": "sliders without a kernel",
    "mathjax": "formulas",
}


def unpack(package: str, folder: Path) -> Path:
    """Download one package from the npm registry and unpack it."""
    packed = subprocess.run(
        ["npm", "pack", "--silent", package], cwd=folder, check=True, capture_output=True, text=True, encoding="utf-8"
    )
    target = folder / package.replace("/", "_")
    with tarfile.open(folder / packed.stdout.split()[-1]) as archive:
        archive.extractall(target, filter="data")
    return target / "package"


def main() -> None:
    """Replace the contents of `vendor/` and write its README."""
    shutil.rmtree(VENDOR, ignore_errors=True)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for package, files in PACKAGES.items():
            source = unpack(package, Path(temporary))
            about = json.loads((source / "package.json").read_text(encoding="utf-8"))
            rows.append(f"| `{about['name']}` | {about['version']} | {about['license']} | {USES[about['name']]} |")
            for inside, place in files.items():
                target = VENDOR / place
                target.parent.mkdir(parents=True, exist_ok=True)
                if (source / inside).is_dir():
                    shutil.copytree(source / inside, target)
                else:
                    shutil.copyfile(source / inside, target)
    digests = [
        f"| `{path.relative_to(VENDOR).as_posix()}` | `{hashlib.sha256(path.read_bytes()).hexdigest()}` |"
        for path in sorted(VENDOR.rglob("*"))
        if path.is_file()
    ]
    text = README.format(packages="\n".join(rows), files="\n".join(digests))
    (VENDOR / "README.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
