"""Merge the definitions of a notebook cell into the text of a module.

Same-named definitions are replaced in place and the rest of the module is kept; imports are gathered
at the top. The cell's own text is kept, comments included. Nothing here executes anything.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

Import = tuple[int, str, str | None, str | None]  # level, module, name (None: plain import), alias


@dataclass
class Piece:
    """One top-level statement of a module: its text, and the names it defines (none: kept as it is)."""

    text: str
    names: tuple[str, ...] = ()
    stub: bool = False
    compact: bool = False  # constants stand together, without two blank lines between


@dataclass
class Source:
    """A module or cell taken apart."""

    docstring: str | None = None
    imports: dict[str, Import] = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)


@dataclass(frozen=True)
class Merged:
    """The result of a merge."""

    text: str
    names: tuple[str, ...]  # what the cell defines
    imported: tuple[str, ...]  # names that the cell's imports bind
    stubs: tuple[str, ...]  # those of them that are still stubs
    kept: tuple[str, ...]  # finished definitions that the cell's untouched stubs did not replace
    rest: ast.Module  # the cell's other statements, for the notebook to run


def merge(module: str, cell: str, docstring: str) -> Merged:
    """Merge `cell` into the text `module` (empty for a new one).

    Raises:
        SyntaxError: the cell does not parse; line numbers are those of the cell.
        ValueError: the module's own text does not parse.
    """
    new, rest = take_apart(cell)
    try:
        old, _ = take_apart(module, keep_rest=True)
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from error
    kept = _replace(old.pieces, new.pieces)
    imports = {**old.imports, **new.imports}
    text = _join(old.docstring or docstring, imports, old.pieces)
    names = tuple(name for piece in new.pieces for name in piece.names)
    stubs = tuple(name for piece in new.pieces for name in piece.names if piece.stub)
    return Merged(text, names, tuple(new.imports), stubs, tuple(kept), rest)


def take_apart(text: str, keep_rest: bool = False) -> tuple[Source, ast.Module]:
    """Split a module's text into imports, definitions and the remaining statements.

    With `keep_rest` the remaining statements stay among the pieces, in their places.
    """
    tree = ast.parse(text)
    lines = text.splitlines()
    source, rest = Source(), ast.Module(body=[], type_ignores=[])
    last_line = 0
    for index, node in enumerate(tree.body):
        if index == 0 and isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str):
            source.docstring = ast.literal_eval(node.value)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            source.imports.update(_bindings(node))
        elif names := _defined(node):
            simple = isinstance(node, ast.Assign | ast.AnnAssign)
            source.pieces.append(Piece(_text(node, lines, last_line), names, is_stub(node), simple))
        elif keep_rest:
            source.pieces.append(Piece(_text(node, lines, last_line)))
        else:
            rest.body.append(node)
        last_line = node.end_lineno or node.lineno
    return source, rest


def is_stub(node: ast.AST) -> bool:
    """True if any function in it still consists of `raise NotImplementedError`."""
    return any(isinstance(inner, ast.FunctionDef) and _not_implemented(inner.body) for inner in ast.walk(node))


def _not_implemented(body: list[ast.stmt]) -> bool:
    if body and isinstance(body[0], ast.Expr) and isinstance(getattr(body[0].value, "value", None), str):
        body = body[1:]
    if len(body) != 1 or not isinstance(body[0], ast.Raise):
        return False
    raised = body[0].exc.func if isinstance(body[0].exc, ast.Call) else body[0].exc
    return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"


def _defined(node: ast.stmt) -> tuple[str, ...]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return (node.name,)
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    names = tuple(target.id for target in targets if isinstance(target, ast.Name))
    return names if len(names) == len(targets) else ()


def _text(node: ast.stmt, lines: list[str], previous_end: int) -> str:
    """The statement's own lines, with its decorators and the comments that stand right above it."""
    start = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
    end = node.end_lineno or node.lineno
    if start <= previous_end or ";" in lines[end - 1][node.end_col_offset or 0 :]:
        return ast.unparse(node)  # shares a line with another statement
    while start - 1 > previous_end and lines[start - 2].lstrip().startswith("#"):
        start -= 1
    return "\n".join(lines[start - 1 : end])


def _replace(old: list[Piece], new: list[Piece]) -> list[str]:
    """Put the new pieces into the old list, in place; return the names that were kept."""
    kept: list[str] = []
    place = len(old)
    for piece in reversed(new):  # backwards, so that a new helper lands before what uses it
        same = [i for i, other in enumerate(old) if set(other.names) & set(piece.names)]
        if piece.stub and any(not old[i].stub for i in same):
            kept[:0] = piece.names
            place = same[0]
            continue
        for i in reversed(same[1:]):
            del old[i]
            place -= i < place
        if same:
            old[same[0]] = piece
            place = same[0]
        else:
            old.insert(place, piece)
    return kept


def _bindings(node: ast.Import | ast.ImportFrom) -> dict[str, Import]:
    found: dict[str, Import] = {}
    for alias in node.names:
        if isinstance(node, ast.Import):
            found[alias.asname or alias.name] = (0, alias.name, None, alias.asname)
        else:
            key = alias.asname or (alias.name if alias.name != "*" else f"* of {node.module}")
            found[key] = (node.level, node.module or "", alias.name, alias.asname)
    return found


def import_lines(imports: dict[str, Import]) -> list[str]:
    """The import statements that bind these names, future ones first, each module once."""
    plain = [
        (name, f"import {name}" + (f" as {alias}" if alias else ""))
        for _, name, of, alias in imports.values()
        if of is None
    ]
    gathered: dict[tuple[int, str], list[str]] = {}
    for level, module, name, alias in imports.values():
        if name is not None:
            gathered.setdefault((level, module), []).append(name + (f" as {alias}" if alias else ""))
    future = gathered.pop((0, "__future__"), [])
    lines = [f"from __future__ import {', '.join(sorted(future))}", ""] if future else []
    lines += [line for _, line in sorted(plain)]
    for (level, module), names in sorted(gathered.items()):
        lines.append(f"from {'.' * level}{module} import {', '.join(sorted(names))}")
    return lines


def _join(docstring: str, imports: dict[str, Import], pieces: list[Piece]) -> str:
    quoted = repr(docstring) if "\\" in docstring or '"' in docstring else f'"""{docstring}"""'
    parts = [quoted, "\n".join(import_lines(imports))]
    text = "\n\n".join(part for part in parts if part)
    previous: Piece | None = None
    for piece in pieces:
        together = previous is not None and previous.compact and piece.compact
        text += ("\n" if together else "\n\n\n") + piece.text
        previous = piece
    return text.rstrip() + "\n"
