"""Wrong rolling caches, each with the property that must catch it."""

from course.grading.specimens import edit

edit(
    "RollingKVCache",
    "window old positions beside the new",
    old="- self.window + 1)  #",
    new="- self.window)  #",
    caught_by="update returns the new positions and at most window - 1 old ones, the oldest first",
)
edit(
    "RollingKVCache",
    "the new before the old",
    old="torch.cat([old_k[..., gone:, :], k], dim=-2)",
    new="torch.cat([k, old_k[..., gone:, :]], dim=-2)",
    caught_by="update returns the new positions and at most window - 1 old ones, the oldest first",
)
edit(
    "RollingKVCache",
    "a slice from -0 with a window of 1",
    old="gone = max(0, old_k.shape[-2] - self.window + 1)",
    new="gone = 1 - self.window",
    caught_by="update returns the new positions and at most window - 1 old ones, the oldest first",
)
edit(
    "RollingKVCache",
    "the first positions kept, not the last",
    old="k[..., -self.window :, :].clone(), v",
    new="k[..., : self.window, :].clone(), v",
    caught_by="update returns the new positions and at most window - 1 old ones, the oldest first",
)
edit(
    "RollingKVCache",
    "values stored as keys",
    old="k[..., -self.window :, :].clone(), v[..., -self.window :, :].clone()",
    new="v[..., -self.window :, :].clone(), v[..., -self.window :, :].clone()",
    caught_by="update returns the new positions and at most window - 1 old ones, the oldest first",
)
edit(
    "RollingKVCache",
    "several new positions cut to the window",
    old="        return k, v",
    new="        return k[..., -self.window :, :], v[..., -self.window :, :]",
    caught_by="several new positions each find their whole window",
)
edit(
    "RollingKVCache",
    "nothing forgotten",
    old="k[..., -self.window :, :].clone(), v[..., -self.window :, :].clone()",
    new="k.clone(), v.clone()",
    caught_by="it stops growing at window positions",
)
edit(
    "RollingKVCache",
    "keys only in nbytes",
    old="for pair in self.held.values() for x in pair)",
    new="for pair in self.held.values() for x in pair[:1])",
    caught_by="it stops growing at window positions",
)
edit(
    "RollingKVCache",
    "numbers, not bytes",
    old="x.numel() * x.element_size()",
    new="x.numel()",
    caught_by="it stops growing at window positions",
)
edit(
    "RollingKVCache",
    "views of the whole prompt kept",
    old="k[..., -self.window :, :].clone(), v[..., -self.window :, :].clone()",
    new="k[..., -self.window :, :], v[..., -self.window :, :]",
    caught_by="nothing older is kept alive behind the scenes",
)
edit(
    "RollingKVCache",
    "length counts what is held",
    old="min(self.read.values(), default=0)",
    new="min((k.shape[-2] for k, _ in self.held.values()), default=0)",
    caught_by="length counts the positions read by every layer, forgotten ones included",
)
edit(
    "RollingKVCache",
    "length of the layer that is furthest",
    old="min(self.read.values(), default=0)",
    new="max(self.read.values(), default=0)",
    caught_by="length counts the positions read by every layer, forgotten ones included",
)
edit(
    "RollingKVCache",
    "one position counted for each update",
    old="self.read.get(layer, 0) + k.shape[-2]",
    new="self.read.get(layer, 0) + 1",
    caught_by="length counts the positions read by every layer, forgotten ones included",
)
edit(
    "RollingKVCache",
    "one store for all layers",
    old="self.read[layer] = self.read.get(layer, 0) + k.shape[-2]",
    new="self.read[layer] = self.read.get(layer, 0) + k.shape[-2]\n        layer = 0",
    caught_by="layers and caches keep apart",
)
edit(
    "RollingKVCache",
    "the store belongs to the class",
    old="self.held: dict[int, tuple[Tensor, Tensor]] = {}",
    new="self.held = RollingKVCache.__dict__.get('all') or {}\n        RollingKVCache.all = self.held",
    caught_by="layers and caches keep apart",
)
edit(
    "RollingKVCache",
    "always float32",
    old="k[..., -self.window :, :].clone(), v[..., -self.window :, :].clone()",
    new="k[..., -self.window :, :].clone().float(), v[..., -self.window :, :].clone().float()",
    caught_by="what update was given or returned does not change later, and its dtype is kept",
)
edit(
    "RollingKVCache",
    "the buffer itself returned, and written to later",
    old="        return k, v",
    new="        if k.shape[-2] <= self.window:\n"
    "            if k.shape[-2] > 1:\n"
    "                old_k.zero_()\n"
    "            k, v = self.held[layer]\n"
    "        return k, v",
    caught_by="what update was given or returned does not change later, and its dtype is kept",
)
edit(
    "RollingKVCache",
    "no check of the window",
    old="if window < 1:",
    new="if False:",
    caught_by="a cache for a window below 1 is a ValueError that names the number",
)
