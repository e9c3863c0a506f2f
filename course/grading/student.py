"""A student's module as the hidden tests see it.

`Student` and the handles it returns look like the module and its objects. Every call goes through a
connection to a worker, in the sandbox or (for trusted code) in this process; both carry the same frames.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from course.grading.protocol import MAX_FRAME, Decoder, Encoder, Json, ProtocolError, pack, unpack

CALL_SECONDS = 10.0
SUBMISSION_SECONDS = 120.0  # all of a submission's calls together
TEXT_LENGTH = 240


class StudentError(Exception):
    """The student's code raised something: its kinds (class and bases), message, and own line."""

    def __init__(self, kinds: list[str], message: str, line: int = 0, text: str = "") -> None:
        self.kinds, self.message, self.line, self.text = kinds or ["Exception"], message, line, text
        super().__init__(str(self))

    @property
    def not_started(self) -> bool:
        """True for the stub's own `raise NotImplementedError`; torch raises it too, with a message."""
        return self.kinds[0] == "NotImplementedError" and not self.message

    def __str__(self) -> str:
        place = f", at `{self.text}`" if self.text else ""
        return (
            f"your code raised {self.kinds[0]}: {self.message}{place}"
            if self.message
            else (f"your code raised {self.kinds[0]}{place}")
        )


class WorkerLost(Exception):
    """The student's process has ended or had to be ended; the message says how."""


class Connection(Protocol):
    """Sends a request frame's content to a worker and returns the response's."""

    def exchange(self, frame: bytes) -> bytes:
        """One request, one response (both without their 8 bytes of length)."""
        ...


class LocalConnection:
    """To a worker in this process: no wall."""

    def __init__(self, handle: Callable[[bytes], bytes]) -> None:
        self._handle = handle

    def exchange(self, frame: bytes) -> bytes:
        return self._handle(frame)[8:]


class Patience:
    """The time that the grader still has for a submission, over all its processes."""

    def __init__(self, seconds: float = SUBMISSION_SECONDS) -> None:
        self.seconds = seconds

    @contextlib.contextmanager
    def wait(self) -> Iterator[float]:
        """Gives the deadline of one call, and takes the time that it took."""
        if self.seconds <= 0:
            raise WorkerLost(f"the submission used up its {SUBMISSION_SECONDS:.0f} seconds")
        start = time.monotonic()
        try:
            yield start + CALL_SECONDS
        finally:
            self.seconds -= time.monotonic() - start


class SocketConnection:
    """To a worker in the sandbox, with a time limit for each call."""

    def __init__(self, connection: socket.socket, patience: Patience) -> None:
        self._socket, self._patience = connection, patience

    def exchange(self, frame: bytes) -> bytes:
        with self._patience.wait() as deadline:
            return self._exchange(frame, deadline)

    def _exchange(self, frame: bytes, deadline: float) -> bytes:
        try:
            self._socket.settimeout(CALL_SECONDS)
            self._socket.sendall(len(frame).to_bytes(8, "big") + frame)
            size = int.from_bytes(self._receive(8, deadline), "big")
            if size > MAX_FRAME + 2**20:
                raise WorkerLost("the result was too large")
            return self._receive(size, deadline)
        except TimeoutError:
            raise WorkerLost(f"it did not finish within {CALL_SECONDS:.0f} seconds") from None
        except OSError:
            raise WorkerLost("it ended the Python process") from None

    def _receive(self, size: int, deadline: float) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            left = deadline - time.monotonic()
            if left <= 0:  # the answer may come byte by byte, each in time
                raise TimeoutError
            self._socket.settimeout(left)
            part = self._socket.recv(min(size - len(parts), 2**20))
            if not part:
                raise WorkerLost("it ended the Python process (out of memory, or an exit)")
            parts += part
        return bytes(parts)


class Session:
    """The requests that a worker understands."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._dead_graphs: list[int] = []

    def begin(self, files: dict[str, bytes], module: str, seed: int) -> None:
        """Give the worker the `lib` that the student's module builds on."""
        as_text = {name: base64.b64encode(content).decode() for name, content in files.items()}
        self._request({"op": "begin", "files": as_text, "module": module, "seed": seed}, [])

    def add(self, source: str) -> str | None:
        """Add a cell to the student's module; returns why it could not be added, if so."""
        try:
            problem = self._request({"op": "add", "source": source}, []).get("problem")
        except StudentError as error:  # such as an exit while it is imported
            return str(error)
        return None if problem is None else _clean(problem)

    def get(self, target: Json) -> Any:
        """The value or handle at a path."""
        return self._value(self._request({"op": "get", "target": target}, []), [])

    def call(self, target: Json, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call what is at a path; differentiable where an input or parameter is."""
        encoder = Encoder(_handle_key, strides=True)
        request = {
            "op": "call",
            "target": target,
            "args": encoder.encode(args),
            "kwargs": encoder.encode(kwargs),
            "grad": torch.is_grad_enabled(),
        }
        return self._value(self._request(request, encoder.tensors), encoder.differentiable)

    def backward(self, graph: int, cotangents: list[Tensor | None]) -> list[Tensor | None]:
        """Gradients of a call's differentiable inputs; those of parameters stay with the worker."""
        encoder = Encoder(_handle_key, strides=True)
        tree = encoder.encode(list(cotangents))
        answer = self._request({"op": "backward", "graph": graph, "cotangents": tree}, encoder.tensors)
        gradients = self._value({**answer, "graph": None}, [])
        if not isinstance(gradients, list) or not all(g is None or isinstance(g, Tensor) for g in gradients):
            raise StudentError(["ProtocolError"], "the gradients are not tensors")
        return gradients

    def forget_later(self, graph: int) -> None:
        """Let the worker drop a call's graph with the next request."""
        self._dead_graphs.append(graph)

    def _request(self, request: Json, tensors: list[Tensor]) -> Any:
        request["forget"], self._dead_graphs = self._dead_graphs, []
        try:
            answer, self._tensors = unpack(self._connection.exchange(pack(request, tensors)[8:]))
        except ProtocolError:
            raise WorkerLost("it broke the connection to the grader") from None
        if not isinstance(answer, dict):
            raise WorkerLost("it broke the connection to the grader")
        if "error" in answer:
            raise _student_error(answer["error"])
        return answer

    def _value(self, answer: Json, inputs: list[Tensor]) -> Any:
        decoder = Decoder(self._tensors, self._remote, strict=True)
        try:
            value = decoder.decode(answer.get("value"))
        except ProtocolError as error:
            raise StudentError(["ProtocolError"], str(error)) from None
        if isinstance(answer.get("graph"), int) and decoder.differentiable:
            linked = _link(self, answer["graph"], decoder.differentiable, inputs)
            value = _substitute(value, dict(zip(map(id, decoder.differentiable), linked, strict=True)))
        return value

    def _remote(self, key: Json) -> Remote:
        number, type_name, is_callable = key
        return Remote(self, [int(number), []], _clean(type_name), bool(is_callable))


class Remote:
    """An object of the student's side: call it, or ask for its attributes."""

    def __init__(self, session: Session, target: Json, type_name: str = "module", is_callable: bool = True) -> None:
        self._session, self._target = session, target
        self.type_name, self.is_callable = type_name, is_callable

    __iter__ = None  # else Python would ask for item 0, 1, 2, ..., of which a student's object can have no end

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        root, path = self._target
        if root in ("torch", "fixtures"):
            return Remote(self._session, [root, [*path, name]])
        return self._session.get([root, [*path, name]])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._session.call(self._target, args, kwargs)

    def __getitem__(self, index: Any) -> Any:
        root, path = self._target
        return self._session.call([root, [*path, "__getitem__"]], (index,), {})

    def grads(self) -> dict[str, Tensor | None]:
        """The gradients of a module's parameters, by name."""
        result: dict[str, Tensor | None] = self._session.call(["fixtures", ["grads"]], (self,), {})
        return result

    def __repr__(self) -> str:
        return f"<{self.type_name} of the student>"


class Student:
    """The student's module: `student.softmax(x)` calls their function."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._definitions: dict[str, Remote] = {}
        self.torch = Remote(session, ["torch", []])
        self.fixtures = Remote(session, ["fixtures", []])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._definitions:
            return self._definitions[name]
        value = self._session.get(["module", [name]])
        if isinstance(value, Remote):
            self._definitions[name] = value
        return value

    def generator(self, seed: int) -> Any:
        """A `torch.Generator` beside the student's code."""
        return self.torch.Generator().manual_seed(seed)


class _Link(torch.autograd.Function):
    """Continues autograd's graph through the wall."""

    @staticmethod
    def forward(ctx: Any, session: Session, graph: int, outputs: list[Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.session, ctx.graph, ctx.inputs = session, graph, len(inputs)
        weakref.finalize(ctx, session.forget_later, graph)
        return tuple(output.clone() for output in outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.session.backward(ctx.graph, list(cotangents))
        gradients = (gradients + [None] * ctx.inputs)[: ctx.inputs]  # none for the stand-in of _link
        return (None, None, None, *gradients)


def _link(session: Session, graph: int, outputs: list[Tensor], inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """Outputs that backpropagate through the worker; without inputs, to its parameters alone."""
    leaves = inputs or [torch.zeros((), requires_grad=True)]
    linked: tuple[Tensor, ...] = _Link.apply(session, graph, outputs, *leaves)
    return linked


def _substitute(value: Any, by_id: dict[int, Tensor]) -> Any:
    if isinstance(value, Tensor):
        return by_id.get(id(value), value)
    if isinstance(value, list | tuple):
        return type(value)(_substitute(item, by_id) for item in value)
    if isinstance(value, dict):
        return {key: _substitute(item, by_id) for key, item in value.items()}
    return value


def _handle_key(value: Any) -> Json:
    if isinstance(value, Remote):
        root, path = value._target
        if isinstance(root, int) and not path:
            return root
    raise TypeError(f"a {type(value).__name__} cannot cross the wall; make it by student.torch or student.fixtures")


def _student_error(report: Any) -> StudentError:
    with contextlib.suppress(Exception):
        kinds = [_clean(kind)[:60] for kind in report["kinds"][:20]]
        return StudentError(kinds, _clean(report["message"]), int(report["line"]), _clean(report["text"]))
    return StudentError(["Exception"], "")


def _clean(text: Any) -> str:
    """One printable line of limited length, whatever the student's side sent."""
    line = " ".join(str(text).split())
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    return printable if len(printable) <= TEXT_LENGTH else printable[: TEXT_LENGTH - 1] + "…"
