"""Right transformers that differ from the reference: each must get full marks."""

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from course.grading.specimens import variant
from lib.config import Config

from .attention import causal_mask
from .feed_forward import FeedForward, SwiGLU
from .layer_normalization import LayerNorm, RMSNorm
from .multi_head_attention import MultiHeadAttention
from .positional_encoding import LearnedPositionalEncoding, sinusoidal_encoding
from .residual_connection import Residual
from .tokens import TokenEmbedding


@variant("everything written out in place")
class TransformerBlock(nn.Module):
    def __init__(
        self, config: Config, attention: nn.Module | None = None, feed_forward: nn.Module | None = None
    ) -> None:
        super().__init__()
        D, eps = config.d_model, config.norm_eps
        norms = [RMSNorm(D, eps) if config.norm == "rmsnorm" else LayerNorm(D, eps) for _ in range(2)]
        if attention is None:
            attention = MultiHeadAttention(D, n_heads=config.n_heads, bias=config.bias)
        if feed_forward is None and config.feed_forward == "swiglu":
            feed_forward = SwiGLU(D, config.ff_width)
        elif feed_forward is None:
            feed_forward = FeedForward(D, config.d_ff, activation=config.activation_function, bias=config.bias)
        self.feed_forward = Residual(feed_forward, norms[1], placement=config.placement)
        self.attention = Residual(attention, norms[0], placement=config.placement)

    def forward(self, x: Tensor, mask: Tensor | None = None, **cache: Any) -> Tensor:
        return self.feed_forward(self.attention(x, **cache, mask=mask))


@variant("the parts made in a loop")
class TransformerBlock(nn.Module):
    def __init__(
        self, config: Config, attention: nn.Module | None = None, feed_forward: nn.Module | None = None
    ) -> None:
        super().__init__()
        given = {"attention": attention, "feed_forward": feed_forward}
        for name, part in given.items():
            norm = (LayerNorm if config.norm == "layernorm" else RMSNorm)(config.d_model, config.norm_eps)
            setattr(self, name, Residual(self.made(config, name) if part is None else part, norm, config.placement))

    def made(self, config: Config, name: str) -> nn.Module:
        if name == "attention":
            return MultiHeadAttention(config.d_model, config.n_heads, config.bias)
        if config.feed_forward == "mlp":
            return FeedForward(config.d_model, config.ff_width, config.activation_function, config.bias)
        return SwiGLU(config.d_model, config.ff_width)

    def forward(self, x: Tensor, mask: Tensor | None = None, **cache: Any) -> Tensor:
        after_attention = self.attention(x, mask=mask, **cache)
        return self.feed_forward(after_attention)


@variant("the sinusoidal table made at each call, the norm only where it is")
class Transformer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList([TransformerBlock(config) for _ in range(config.n_layers)])
        self.norm: nn.Module | None = None
        if config.placement == "pre":
            self.norm = LayerNorm(config.d_model, config.norm_eps)
            if config.norm == "rmsnorm":
                self.norm = RMSNorm(config.d_model, config.norm_eps)
        self.lm_head = None if config.tied_embeddings else nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.positions = None
        if config.positions == "learned":
            self.positions = LearnedPositionalEncoding(config.max_len, config.d_model)

    def forward(self, ids: Tensor, offset: int = 0, **cache: Any) -> Tensor:
        T = ids.shape[1]
        limit = self.config.max_len
        if self.config.positions in ("learned", "sinusoidal") and limit < offset + T:
            raise ValueError(f"{T} ids from position {offset}, but only {limit} positions")
        x = self.embedding(ids)
        if self.positions is not None:
            x = self.positions(x, offset)
        if self.config.positions == "sinusoidal":
            x = x + sinusoidal_encoding(offset + T, self.config.d_model).to(x)[offset:]
        mask = causal_mask(T) if self.config.causal else torch.ones(T, T, dtype=torch.bool)
        for block in self.blocks:
            x = block(x, mask, **cache)
        if self.norm is not None:
            x = self.norm(x)
        return self.embedding.unembed(x) if self.lm_head is None else self.lm_head(x)


@variant("scores by the table's transpose")
class Transformer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(config.vocab_size, config.d_model)
        if config.positions == "learned":
            self.positions = LearnedPositionalEncoding(config.max_len, config.d_model)
        self.blocks = nn.ModuleList()
        for _ in range(config.n_layers):
            self.blocks.append(TransformerBlock(dataclasses.replace(config)))
        kind = LayerNorm if config.norm == "layernorm" else RMSNorm
        self.norm = kind(config.d_model, eps=config.norm_eps) if config.placement == "pre" else nn.Identity()
        if not config.tied_embeddings:
            self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)

    def forward(self, ids: Tensor, offset: int = 0, **options: Any) -> Tensor:
        kind, T = self.config.positions, ids.size(1)
        if kind in ("learned", "sinusoidal") and self.config.max_len < T + offset:
            raise ValueError(f"max_len is {self.config.max_len}, T is {T}")
        x = self.embedding(ids)
        x = self.positions(x, offset) if kind == "learned" else x
        if kind == "sinusoidal":
            x = x + sinusoidal_encoding(self.config.max_len, self.config.d_model)[offset : offset + T]
        for block in self.blocks:
            x = block(x, mask=causal_mask(T, T) if self.config.causal else None, **options)
        table = self.embedding.weight if self.config.tied_embeddings else self.lm_head.weight
        return self.norm(x) @ table.T


@variant("a TransformerBlock's two parts, and one more")
class DecoderBlock(TransformerBlock):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        norm = (RMSNorm if config.norm == "rmsnorm" else LayerNorm)(config.d_model, config.norm_eps)
        across = MultiHeadAttention(config.d_model, config.n_heads, config.bias)
        self.cross_attention = Residual(across, norm, config.placement)

    def forward(  # type: ignore[override] # a decoder's block takes a source as well
        self, x: Tensor, source: Tensor, mask: Tensor | None = None, source_mask: Tensor | None = None
    ) -> Tensor:
        x = self.attention(x, mask=mask)
        return self.feed_forward(self.cross_attention(x, context=source, mask=source_mask))


@variant("parts written out")
class DecoderBlock(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        D, H = config.d_model, config.n_heads
        kind = LayerNorm if config.norm == "layernorm" else RMSNorm
        one, two, three = (kind(D, eps=config.norm_eps) for _ in range(3))
        if config.feed_forward == "swiglu":
            network: nn.Module = SwiGLU(D, config.ff_width)
        else:
            network = FeedForward(D, config.ff_width, config.activation_function, config.bias)
        self.attention = Residual(MultiHeadAttention(D, H, config.bias), one, config.placement)
        self.cross_attention = Residual(MultiHeadAttention(D, H, config.bias), two, config.placement)
        self.feed_forward = Residual(network, three, config.placement)

    def forward(
        self, x: Tensor, source: Tensor, mask: Tensor | None = None, source_mask: Tensor | None = None
    ) -> Tensor:
        for part, keywords in (
            (self.attention, {"mask": mask}),
            (self.cross_attention, {"context": source, "mask": source_mask}),
            (self.feed_forward, {}),
        ):
            x = part(x, **keywords)
        return x
