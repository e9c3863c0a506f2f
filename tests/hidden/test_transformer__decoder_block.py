"""Hidden tests of chapter 08, continued: DecoderBlock."""

import torch
from torch import Tensor

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student
from tests.hidden.transformer_truth import Model, loaded, stream


def decoded(
    model: Model, x: Tensor, source: Tensor, mask: Tensor | None = None, across: Tensor | None = None
) -> Tensor:
    """The decoder's block in float64."""
    source = source.double()
    x = model.residual(x.double(), "attention", lambda y: model.attention(y, "attention.sublayer", mask))
    name = "cross_attention"
    x = model.residual(x, name, lambda y: model.attention(y, name + ".sublayer", across, source))
    return model.residual(x, "feed_forward", lambda y: model.network(y, "feed_forward.sublayer"))


@hidden_test(
    "DecoderBlock",
    "its parts are attention, cross_attention and feed_forward, each a Residual",
    hint="Three times Residual(sublayer, norm, config.placement), with a norm of its own each.",
    weight=2,
)
def test_decoder_names(student: Student, check: Check) -> None:
    for plan in ({}, {"bias": False, "norm": "rmsnorm"}, {"feed_forward": "swiglu", "n_heads": 4}):
        block, model = loaded(student, check, "DecoderBlock", **plan)
        x, source = stream(check, 4), stream(check, 7)
        check.close(block(x, source), decoded(model, x, source), f"the output, {plan or 'the standard plan'}")


@hidden_test(
    "DecoderBlock",
    "the output is that of self-attention, cross-attention and network, in this order",
    hint="x = self.attention(...), x = self.cross_attention(x, context=source, ...), then self.feed_forward(x).",
    weight=3,
)
def test_decoder(student: Student, check: Check) -> None:
    for placement in ("pre", "post"):
        block, model = loaded(student, check, "DecoderBlock", placement=placement)
        x, source = stream(check, 5), stream(check, 3)
        check.close(block(x, source), decoded(model, x, source), f"placement={placement!r}")


@hidden_test(
    "DecoderBlock",
    "queries come from what is written, keys and values from the source",
    hint="The source is the context of cross_attention, as it came: not normed, and never asked.",
    weight=2,
)
def test_decoder_source(student: Student, check: Check) -> None:
    block, model = loaded(student, check, "DecoderBlock")
    x = stream(check, 4)
    for S in (1, 4, 6):
        source = 3 * stream(check, S) + 1
        check.close(block(x, source), decoded(model, x, source), f"4 tokens written, {S} in the source")


@hidden_test(
    "DecoderBlock",
    "the mask is for self-attention, not for cross-attention",
    hint="What is written may see all of the source, and only its own past.",
    weight=2,
    at_most=0.6,
)
def test_decoder_mask(student: Student, check: Check) -> None:
    block, model = loaded(student, check, "DecoderBlock")
    x, source, mask = stream(check, 5), stream(check, 5), torch.ones(5, 5, dtype=torch.bool).tril()
    check.close(block(x, source, mask), decoded(model, x, source, mask), "a causal mask, 5 tokens and 5 in the source")
    source = stream(check, 7)
    check.close(block(x, source, mask=mask), decoded(model, x, source, mask), "a causal mask, 7 in the source")


@hidden_test(
    "DecoderBlock",
    "the source's mask is for cross-attention",
    hint="source_mask hides padding of the source; self-attention does not see the source at all.",
)
def test_decoder_source_mask(student: Student, check: Check) -> None:
    block, model = loaded(student, check, "DecoderBlock")
    x, source = stream(check, 4), stream(check, 6)
    across = torch.tensor([True, True, False, True, False, True])[None, None, None]
    check.close(block(x, source, source_mask=across), decoded(model, x, source, None, across), "two of six hidden")


@hidden_test(
    "DecoderBlock",
    "gradients reach the stream and the source",
    hint="The encoder learns through the source: do not detach it. Otherwise at most three fifths of the points.",
    at_most=0.6,
)
def test_decoder_gradients(student: Student, check: Check) -> None:
    block, model = loaded(student, check, "DecoderBlock")
    x, source, probe = stream(check, 4).requires_grad_(), stream(check, 6).requires_grad_(), stream(check, 4)
    (block(x, source) * probe).sum().backward()
    y, z = x.detach().clone().requires_grad_(), source.detach().clone().requires_grad_()
    want = torch.autograd.grad((decoded(model, y, z) * probe).sum(), [y, z])
    check.close(x.grad, want[0], "the gradient of the stream", rtol=1e-3)
    check.close(source.grad, want[1], "the gradient of the source", rtol=1e-3)
