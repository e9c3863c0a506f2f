"""The transformer: identical blocks of attention and feed-forward network over one residual stream."""

from typing import Any

from torch import Tensor, nn

from lib.config import Config

from .attention import causal_mask
from .feed_forward import FeedForward, SwiGLU
from .layer_normalization import LayerNorm, RMSNorm
from .multi_head_attention import MultiHeadAttention
from .positional_encoding import LearnedPositionalEncoding, sinusoidal_encoding
from .residual_connection import Residual
from .tokens import TokenEmbedding


def make_norm(config: Config) -> nn.Module:
    """The norm that the plan asks for."""
    kind = {"layernorm": LayerNorm, "rmsnorm": RMSNorm}[config.norm]
    return kind(config.d_model, eps=config.norm_eps)


def make_feed_forward(config: Config) -> nn.Module:
    """The feed-forward network that the plan asks for."""
    if config.feed_forward == "swiglu":
        return SwiGLU(config.d_model, config.ff_width)
    return FeedForward(config.d_model, config.ff_width, config.activation_function, bias=config.bias)


class TransformerBlock(nn.Module):
    """One layer: attention, then the feed-forward network, each in a `Residual` with a norm of its own.

    Its parts are `attention` and `feed_forward`, each a `Residual`, so its state dict has names such
    as `attention.sublayer.q_proj.weight`, `attention.norm.weight`, `feed_forward.sublayer.up_proj.weight`
    and `feed_forward.norm.weight`.

    Args:
        config: of it the block reads `d_model`, `n_heads`, `bias`, `norm`, `norm_eps`, `placement`,
            `feed_forward`, `ff_width` and `activation_function`.
        attention: a module to take the place of `MultiHeadAttention`; called with `mask=` and
            whatever else comes by keyword.
        feed_forward: a module to take the place of `FeedForward` or `SwiGLU`.

    Source: "Attention Is All You Need", section 3.1 (Vaswani et al., 2017).
    """

    def __init__(
        self, config: Config, attention: nn.Module | None = None, feed_forward: nn.Module | None = None
    ) -> None:
        super().__init__()
        if attention is None:
            attention = MultiHeadAttention(config.d_model, config.n_heads, bias=config.bias)
        if feed_forward is None:
            feed_forward = make_feed_forward(config)
        self.attention = Residual(attention, make_norm(config), config.placement)
        self.feed_forward = Residual(feed_forward, make_norm(config), config.placement)

    def forward(self, x: Tensor, mask: Tensor | None = None, **cache: Any) -> Tensor:
        """Let the tokens exchange what they know, then work on it.

        Args:
            x: the stream, `(B, T, D)`.
            mask: boolean, `True` = may attend; handed to attention.
            cache: handed to attention too, such as `attend=`; later chapters pass their cache here.

        Returns:
            The stream after this block, `(B, T, D)`.
        """
        x = self.attention(x, mask=mask, **cache)
        return self.feed_forward(x)


class Transformer(nn.Module):
    """Ids in, scores of the next id out: embedding, positions, `L` blocks, a last norm, unembedding.

    Its parts: `embedding`, a `TokenEmbedding`; `positions`, where they are learned; `blocks`, an
    `nn.ModuleList`; `norm`, of the last block's output, where the placement is `pre` (a post-norm
    block ends in a norm already); `lm_head`, a linear layer without bias, only where the embeddings
    are not tied. A fixed table of positions is no parameter and is not in the state dict. Positions
    that are neither `learned` nor `sinusoidal` are not added: later chapters bring others.

    Args:
        config: the plan; kept as `config`.

    Source: "Attention Is All You Need" (Vaswani et al., 2017); "Language Models are Unsupervised
    Multitask Learners" (Radford et al., 2019).
    """

    table: Tensor  # the fixed positions, where there are any

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(config.vocab_size, config.d_model)
        if config.positions == "learned":
            self.positions = LearnedPositionalEncoding(config.max_len, config.d_model)
        elif config.positions == "sinusoidal":
            table = sinusoidal_encoding(config.max_len, config.d_model)
            self.register_buffer("table", table, persistent=False)
        self.blocks = nn.ModuleList(TransformerBlock(config) for _ in range(config.n_layers))
        self.norm = make_norm(config) if config.placement == "pre" else nn.Identity()
        if not config.tied_embeddings:
            self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)

    def forward(self, ids: Tensor, offset: int = 0, **cache: Any) -> Tensor:
        """Score every id of the vocabulary at every position.

        Args:
            ids: token ids, `(B, T)`.
            offset: position of the first token; with a cache, the number of tokens before it.
            cache: handed to every block, such as `attend=`; later chapters pass their cache here.

        Returns:
            The scores (logits), `(B, T, V)`. Where the plan says causal, those of a position depend
            on it and the ones before it only.

        Raises:
            ValueError: there are positions to add and `offset + T` is more than `max_len`; the
                message names `T` and `max_len`.
        """
        T, config = ids.shape[1], self.config
        if config.positions in ("learned", "sinusoidal") and offset + T > config.max_len:
            raise ValueError(
                f"there are more positions than the table has: offset {offset}, T {T}, max_len {config.max_len}"
            )
        x = self.embedding(ids)  # (B, T, D)
        if config.positions == "learned":
            x = self.positions(x, offset=offset)
        elif config.positions == "sinusoidal":
            x = x + self.table[offset : offset + T]
        mask = causal_mask(T, device=ids.device) if config.causal else None
        for block in self.blocks:
            x = block(x, mask=mask, **cache)
        x = self.norm(x)
        return self.embedding.unembed(x) if config.tied_embeddings else self.lm_head(x)


class DecoderBlock(nn.Module):
    """A decoder's layer in the original wiring: look back, look across, then work on it.

    Three parts, each a `Residual` with a norm of its own: `attention` among the tokens written so
    far, `cross_attention` from them to the source, and `feed_forward`.

    Args:
        config: as for `TransformerBlock`.

    Source: "Attention Is All You Need", section 3.1 and figure 1 (Vaswani et al., 2017).
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        looks_back = MultiHeadAttention(config.d_model, config.n_heads, bias=config.bias)
        looks_across = MultiHeadAttention(config.d_model, config.n_heads, bias=config.bias)
        self.attention = Residual(looks_back, make_norm(config), config.placement)
        self.cross_attention = Residual(looks_across, make_norm(config), config.placement)
        self.feed_forward = Residual(make_feed_forward(config), make_norm(config), config.placement)

    def forward(
        self, x: Tensor, source: Tensor, mask: Tensor | None = None, source_mask: Tensor | None = None
    ) -> Tensor:
        """Run the three parts in turn.

        Args:
            x: the stream of what is being written, `(B, T, D)`.
            source: the encoder's output, `(B, S, D)`: keys and values of the cross-attention.
            mask: who may look at whom among the tokens written, such as a causal mask `(T, T)`.
            source_mask: who may look at what in the source, broadcast with `(B, H, T, S)`.

        Returns:
            The stream after this block, `(B, T, D)`.
        """
        x = self.attention(x, mask=mask)
        x = self.cross_attention(x, context=source, mask=source_mask)
        return self.feed_forward(x)
