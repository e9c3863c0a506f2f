"""Right answers to the exercises of chapter 10 that differ from the reference."""

import torch
from torch import Tensor, nn

from course.grading.specimens import variant
from lib.config import Config

from .layer_normalization import LayerNorm, RMSNorm
from .positional_encoding import LearnedPositionalEncoding, sinusoidal_encoding
from .tokens import TokenEmbedding
from .transformer import TransformerBlock


@variant("by Bernoulli draws, one half of what is left, as the reference library does")
def mask_tokens(
    ids: Tensor,
    mask_id: int,
    vocab_size: int,
    p: float = 0.15,
    generator: torch.Generator | None = None,
    special_ids: list[int] | tuple[int, ...] = (),
) -> tuple[Tensor, Tensor]:
    if p < 0 or p > 1:
        raise ValueError(f"p is a probability, not {p}")

    def toss(share: float) -> Tensor:
        return torch.bernoulli(torch.full(ids.shape, share), generator=generator).bool()

    probabilities = torch.full(ids.shape, float(p))
    if len(special_ids):
        probabilities[torch.isin(ids, torch.tensor(list(special_ids)))] = 0.0
    chosen = torch.bernoulli(probabilities, generator=generator).bool()
    inputs, labels = ids.clone(), ids.clone()
    labels[~chosen] = -100
    hidden = toss(0.8) & chosen
    inputs[hidden] = mask_id
    replaced = toss(0.5) & chosen & ~hidden
    inputs[replaced] = torch.randint(0, vocab_size, (int(replaced.sum()),), generator=generator)
    return inputs, labels


@variant("one number for choice and fate")
def mask_tokens(
    ids: Tensor,
    mask_id: int,
    vocab_size: int,
    p: float = 0.15,
    generator: torch.Generator | None = None,
    special_ids: list[int] | tuple[int, ...] = (),
) -> tuple[Tensor, Tensor]:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"expected p between 0 and 1, got {p}")
    number = torch.rand(ids.shape, generator=generator, dtype=torch.float64)
    for special in special_ids:
        number = torch.where(ids == special, torch.full_like(number, 2.0), number)
    random_ids = torch.randint(vocab_size, ids.shape, generator=generator)
    labels = torch.where(number < p, ids, -100)
    inputs = torch.where(number < 0.8 * p, mask_id, ids)
    return torch.where((number >= 0.8 * p) & (number < 0.9 * p), random_ids, inputs), labels


@variant("the fates drawn by multinomial, the random ones last")
def mask_tokens(
    ids: Tensor,
    mask_id: int,
    vocab_size: int,
    p: float = 0.15,
    generator: torch.Generator | None = None,
    special_ids: list[int] | tuple[int, ...] = (),
) -> tuple[Tensor, Tensor]:
    if not 0 <= p <= 1:
        raise ValueError(f"p = {p} is not from 0 to 1")
    shares = torch.tensor([1 - p, 0.1 * p, 0.1 * p, 0.8 * p])
    fate = torch.multinomial(shares, ids.numel(), replacement=True, generator=generator).view(ids.shape)
    for special in special_ids:
        fate[ids == special] = 0
    table = torch.stack(
        [ids, ids, torch.randint(vocab_size, ids.shape, generator=generator), torch.full_like(ids, mask_id)]
    )
    return table.gather(0, fate[None])[0], torch.where(fate > 0, ids, torch.full_like(ids, -100))


@variant("a weighted sum by einsum")
def mean_pool(hidden: Tensor, attention_mask: Tensor) -> Tensor:
    weights = attention_mask.to(hidden.dtype)
    weights = weights / weights.sum(dim=1, keepdim=True).clamp_min(1e-9)
    return torch.einsum("btd,bt->bd", hidden, weights)


@variant("in the way of the reference library")
def mean_pool(hidden: Tensor, attention_mask: Tensor) -> Tensor:
    expanded = attention_mask.unsqueeze(-1).expand(hidden.size()).to(hidden.dtype)
    return torch.sum(hidden * expanded, 1) / torch.clamp(expanded.sum(1), min=1e-3)


@variant("text by text")
def mean_pool(hidden: Tensor, attention_mask: Tensor) -> Tensor:
    pooled = []
    for vectors, tokens in zip(hidden, attention_mask, strict=True):
        kept = vectors[tokens.bool()]
        pooled.append(kept.mean(dim=0) if len(kept) else 0 * vectors[0])
    return torch.stack(pooled)


@variant("the mask copied out for every query, the norms by name")
class Encoder(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        if config.causal is True:
            raise ValueError("Encoder needs a plan with causal=False")
        self.embedding = TokenEmbedding(config.vocab_size, config.d_model)
        if config.positions == "learned":
            self.positions = LearnedPositionalEncoding(config.max_len, config.d_model)
        blocks = [TransformerBlock(config) for _ in range(config.n_layers)]
        self.blocks = nn.ModuleList(blocks)
        if config.norm == "rmsnorm":
            self.norm: nn.Module = RMSNorm(config.d_model, config.norm_eps)
        else:
            self.norm = LayerNorm(config.d_model, config.norm_eps)
        self.config = config

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        B, T = ids.shape
        x = self.embedding(ids)
        if self.config.positions == "sinusoidal":
            if self.config.max_len < T:
                raise ValueError(f"{T} tokens, and max_len is {self.config.max_len}")
            x = x + sinusoidal_encoding(T, self.config.d_model).to(x)
        if hasattr(self, "positions"):
            x = self.positions(x)  # which raises where T is too long
        if self.config.placement == "post":
            x = self.norm(x)
        if attention_mask is not None:
            attention_mask = (attention_mask != 0).view(B, 1, 1, T).expand(B, 1, T, T)
        for block in self.blocks:
            x = block(x, attention_mask)
        if self.config.placement == "pre":
            x = self.norm(x)
        return x


@variant("an all-true mask where there is none, steps chosen when it is made")
class Encoder(nn.Module):
    fixed: Tensor | None

    def __init__(self, config: Config) -> None:
        super().__init__()
        if config.causal:
            raise ValueError(f"causal must be False for an encoder; the plan says {config.causal}")
        self.config, D = config, config.d_model
        self.norm = (RMSNorm if config.norm == "rmsnorm" else LayerNorm)(D, config.norm_eps)
        self.blocks = nn.ModuleList()
        for _ in range(config.n_layers):
            self.blocks.append(TransformerBlock(config))
        self.embedding = TokenEmbedding(config.vocab_size, D)
        self.positions = LearnedPositionalEncoding(config.max_len, D) if config.positions == "learned" else None
        fixed = sinusoidal_encoding(config.max_len, D) if config.positions == "sinusoidal" else None
        self.register_buffer("fixed", fixed, persistent=False)
        self.first = self.norm if config.placement == "post" else None

    def state_dict(self, *args, **kwargs):  # `first` is the norm once more
        state = super().state_dict(*args, **kwargs)
        return {name: value for name, value in state.items() if not name.startswith("first.")}

    def load_state_dict(self, state_dict, *args, **kwargs):
        state = state_dict
        more = {name.replace("norm.", "first.", 1): x for name, x in state.items() if name.startswith("norm.")}
        return super().load_state_dict({**state, **(more if self.first else {})}, *args, **kwargs)

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        T = ids.shape[1]
        if self.config.positions != "none" and self.config.max_len < T:
            raise ValueError(f"T = {T} is above max_len = {self.config.max_len}")
        tokens = torch.ones_like(ids) if attention_mask is None else attention_mask
        x = self.embedding(ids)
        if self.fixed is not None:
            x = x + self.fixed[:T]
        if self.positions is not None:
            x = self.positions(x)
        x = x if self.first is None else self.first(x)
        for block in self.blocks:
            x = block(x, mask=tokens.bool().unsqueeze(1).unsqueeze(1))
        return x if self.first is not None else self.norm(x)
