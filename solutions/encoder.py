"""The encoder: it sees both sides, learns by filling gaps, and gives a text one vector."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from lib.config import Config

from .layer_normalization import LayerNorm, RMSNorm
from .positional_encoding import LearnedPositionalEncoding, sinusoidal_encoding
from .tokens import TokenEmbedding
from .transformer import TransformerBlock


def mask_tokens(
    ids: Tensor,
    mask_id: int,
    vocab_size: int,
    p: float = 0.15,
    generator: torch.Generator | None = None,
    special_ids: Sequence[int] = (),
) -> tuple[Tensor, Tensor]:
    """Choose tokens to be predicted, and hide most of them.

    Every token is chosen with probability `p`, on its own; those of `special_ids` never are. Of
    the chosen, 80% become `mask_id`, 10% a random id, any of the vocabulary, and 10% stay as
    they are.

    Args:
        ids: the true tokens, `(B, T)`; left as they were.
        mask_id: the id that stands for "hidden".
        vocab_size: `V`; random ids are from 0 to `V - 1`.
        p: the share of tokens to predict, from 0 to 1.
        generator: the source of the random numbers.
        special_ids: ids that are never chosen, such as those that pad or mark the ends.

    Returns:
        The pair `(inputs, labels)`, each `(B, T)`. `labels` holds the true id where a token was
        chosen and -100 elsewhere.

    Raises:
        ValueError: `p` is not from 0 to 1; the message names it.

    Source: "BERT: Pre-training of Deep Bidirectional Transformers", section 3.1 (Devlin et al., 2019).
    """
    if not 0 <= p <= 1:
        raise ValueError(f"p must be from 0 to 1, got {p}")

    draw = partial(torch.rand, ids.shape, generator=generator, device=ids.device)
    chosen = draw() < p
    for special in special_ids:
        chosen &= ids != special
    labels = ids.masked_fill(~chosen, -100)
    fate = draw()
    inputs = ids.masked_fill(chosen & (fate < 0.8), mask_id)
    random_ids = torch.randint(vocab_size, ids.shape, generator=generator, device=ids.device, dtype=ids.dtype)
    return torch.where(chosen & (fate >= 0.8) & (fate < 0.9), random_ids, inputs), labels


def mean_pool(hidden: Tensor, attention_mask: Tensor) -> Tensor:
    """One vector for each text: the mean of its tokens' vectors, padding left out.

    Args:
        hidden: the tokens' vectors, `(B, T, D)`.
        attention_mask: `(B, T)`, boolean or numbers; true or 1 where there is a token.

    Returns:
        The means, `(B, D)`, in the dtype of `hidden`; zeros for a text without a token.

    Source: "Sentence-BERT", section 3 (Reimers and Gurevych, 2019).
    """
    tokens = attention_mask.bool().unsqueeze(-1)  # (B, T, 1)
    total = hidden.masked_fill(~tokens, 0).sum(dim=1)  # (B, D)
    return total / tokens.sum(dim=1).clamp(min=1)  # a text without a token: 0 / 1


class Encoder(nn.Module):
    """Ids in, one vector a token out; every token sees every other.

    Its parts: `embedding`, a `TokenEmbedding`; `positions`, where they are learned; `blocks`, an
    `nn.ModuleList` of `TransformerBlock`; `norm`, which stands where no block norms: on the sum of
    embeddings and positions where the placement is `post` (BERT), on the last block's output where
    it is `pre`. A fixed table of positions is no parameter and is not in the state dict. Positions
    that are neither `learned` nor `sinusoidal` are not added.

    Args:
        config: the plan; kept as `config`.

    Raises:
        ValueError: the plan is causal; the message names the field, `causal`.

    Source: "BERT: Pre-training of Deep Bidirectional Transformers" (Devlin et al., 2019).
    """

    table: Tensor  # the fixed positions, where there are any

    def __init__(self, config: Config) -> None:
        super().__init__()
        if config.causal:
            raise ValueError("an encoder sees both sides: causal must be False, it is True")
        self.config = config
        self.embedding = TokenEmbedding(config.vocab_size, config.d_model)
        if config.positions == "learned":
            self.positions = LearnedPositionalEncoding(config.max_len, config.d_model)
        elif config.positions == "sinusoidal":
            table = sinusoidal_encoding(config.max_len, config.d_model)
            self.register_buffer("table", table, persistent=False)
        self.blocks = nn.ModuleList(TransformerBlock(config) for _ in range(config.n_layers))
        norm = {"layernorm": LayerNorm, "rmsnorm": RMSNorm}[config.norm]
        self.norm = norm(config.d_model, eps=config.norm_eps)

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Read each text from both sides.

        Args:
            ids: token ids, `(B, T)`; texts shorter than `T` are padded, with any id.
            attention_mask: `(B, T)`, boolean or numbers; true or 1 where there is a token. No token
                attends to padding. `None` means that there is none.

        Returns:
            The tokens' vectors, `(B, T, D)`. Those of padding mean nothing.

        Raises:
            ValueError: there are positions to add and `T` is more than `max_len`; the message names
                both.
        """
        T, config = ids.shape[1], self.config
        if config.positions in ("learned", "sinusoidal") and config.max_len < T:
            raise ValueError(f"there are more tokens than positions: T is {T}, max_len is {config.max_len}")
        x = self.embedding(ids)  # (B, T, D)
        if config.positions == "learned":
            x = self.positions(x)
        elif config.positions == "sinusoidal":
            x = x + self.table[:T]
        if config.placement == "post":
            x = self.norm(x)
        mask = None
        if attention_mask is not None:
            mask = attention_mask.bool()[:, None, None, :]  # (B, 1, 1, T): the same keys for all queries
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.norm(x) if config.placement == "pre" else x
