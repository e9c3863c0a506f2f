"""The far side of the wall: loads a student's cells as `lib` and does what the grader asks of them.

It holds no test, mark or truth. Its answers are worth what the student's code makes of them: the
grader compares every value with its own truth, so a forged answer is a wrong answer. The exception
is what a fixture says of how a result was made (which operators ran, how much memory): code that
sets out to can forge it, so no more marks should hang on it than that deserves.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from course import modules
from course.grading import fixtures
from course.grading.protocol import Decoder, Encoder, Json, ProtocolError, pack, unpack

MESSAGE_LENGTH = 300


class Worker:
    """One student's `lib` in a folder of its own, and the objects made with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "lib"
        self.module_path = Path()
        self.roots: dict[str, Any] = {"torch": torch, "fixtures": fixtures}
        self.objects: dict[int, Any] = {}
        self.graphs: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
        self.count = 0

    def handle(self, frame: bytes) -> bytes:
        """Answer one request frame with one response frame."""
        try:
            request, tensors = unpack(frame)
            for graph in request["forget"]:
                self.graphs.pop(graph, None)
            answer = getattr(self, f"_{request['op']}")
            return answer(request, tensors)
        except ProtocolError as error:
            return pack({"error": _error_report("ProtocolError", str(error))}, [])
        except BaseException as error:  # SystemExit and KeyboardInterrupt of a student's code too
            return pack({"error": self._report(error)}, [])

    # Requests

    def _begin(self, request: Json, _: list[Tensor]) -> bytes:
        """Write the files that the student's module builds on."""
        torch.manual_seed(request["seed"])
        self.folder.mkdir()
        for name, content in request["files"].items():
            (self.folder / name).write_bytes(base64.b64decode(content))
        self.module_path = self.folder / f"{request['module']}.py"
        return pack({"problem": None}, [])

    def _add(self, request: Json, _: list[Tensor]) -> bytes:
        """Merge one cell into the student's module, as `%%lib` does in the notebook."""
        try:
            self.roots["module"] = modules.save(self.folder, self.module_path.stem, request["source"]).module
        except modules.CellError as error:
            return pack({"problem": str(error)[:MESSAGE_LENGTH]}, [])
        return pack({"problem": None}, [])

    def _get(self, request: Json, _: list[Tensor]) -> bytes:
        return self._answer(self._find(request["target"]))

    def _call(self, request: Json, tensors: list[Tensor]) -> bytes:
        decoder = Decoder(tensors, lambda key: self.objects[key], strict=False)
        args, kwargs = decoder.decode(request["args"]), decoder.decode(request["kwargs"])
        with torch.set_grad_enabled(request["grad"]):
            result = self._find(request["target"])(*args, **kwargs)
        return self._answer(result, decoder.differentiable)

    def _backward(self, request: Json, tensors: list[Tensor]) -> bytes:
        """Pull cotangents back through an earlier call: gradients of its inputs; parameters accumulate."""
        inputs, outputs = self.graphs[request["graph"]]
        cotangents = Decoder(tensors, lambda key: self.objects[key], strict=False).decode(request["cotangents"])
        for leaf in inputs:
            leaf.grad = None
        pairs = [(out, grad) for out, grad in zip(outputs, cotangents, strict=True) if grad is not None]
        torch.autograd.backward([out for out, _ in pairs], [grad for _, grad in pairs], retain_graph=True)
        return self._answer([leaf.grad for leaf in inputs])

    # Helpers

    def _find(self, target: Json) -> Any:
        root, path = target
        found = self.roots[root] if isinstance(root, str) else self.objects[root]
        for name in path:
            found = getattr(found, name)
        return found

    def _answer(self, value: Any, inputs: list[Tensor] | None = None) -> bytes:
        encoder = Encoder(self._keep, strides=False)
        tree = encoder.encode(value)
        graph = None
        if encoder.differentiable:
            graph = self._number()
            self.graphs[graph] = (inputs or [], encoder.differentiable)
        return pack({"value": tree, "graph": graph}, encoder.tensors)

    def _keep(self, value: Any) -> Json:
        key = self._number()
        self.objects[key] = value
        return [key, type(value).__name__[:80], callable(value)]

    def _number(self) -> int:
        self.count += 1
        return self.count

    def _report(self, error: BaseException) -> Json:
        """What a student needs to know of an error of theirs: kind, message, and their own line."""
        line, text = 0, ""
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == str(self.module_path):
                line, text = frame.lineno or 0, frame.line or ""
        kinds = [kind.__name__ for kind in type(error).__mro__]
        with contextlib.suppress(BaseException):
            return {**_error_report("", str(error)), "kinds": kinds, "line": line, "text": text[:MESSAGE_LENGTH]}
        return _error_report(kinds[0], "")


def _error_report(kind: str, message: str) -> Json:
    return {"kinds": [kind], "message": " ".join(message.split())[:MESSAGE_LENGTH], "line": 0, "text": ""}


@contextlib.contextmanager
def in_this_process() -> Iterator[Worker]:
    """A worker without a wall, for code that is trusted: the reference, mutants and variants.

    The `lib` of this process is set aside meanwhile and comes back unharmed.
    """
    aside = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == modules.PACKAGE}
    finders = list(sys.meta_path)
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        try:
            yield Worker(Path(folder))
        finally:
            sys.path.remove(folder)
            sys.meta_path[:] = finders
            for name in [name for name in sys.modules if name.split(".")[0] == modules.PACKAGE]:
                del sys.modules[name]
            sys.modules.update(aside)


def serve(connection: socket.socket, folder: Path) -> None:
    """Answer frames from the grader until it closes the connection."""
    sys.path.insert(0, str(folder))
    worker = Worker(folder)
    while size := receive(connection, 8):
        connection.sendall(worker.handle(receive(connection, int.from_bytes(size, "big"))))


def receive(connection: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes, or none when the other side has gone."""
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(min(size - len(parts), 2**20))
        if not part:
            return b""
        parts += part
    return bytes(parts)
