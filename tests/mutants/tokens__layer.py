"""Wrong layers, each with the property that must catch it."""

from course.grading.specimens import edit

edit(
    "TokenEmbedding",
    "a separate table for the way out",
    old="torch.empty(vocab_size, d_model))",
    new="torch.empty(vocab_size, d_model))\n"
    "        self.output = nn.Linear(d_model, vocab_size, bias=False)\n"
    "        self.unembed = self.output.forward",
    caught_by="its only parameter is `weight`, V rows of D numbers",
)
edit(
    "TokenEmbedding",
    "a bias on the way out",
    old="torch.empty(vocab_size, d_model))",
    new="torch.empty(vocab_size, d_model))\n"
    "        self.bias = nn.Parameter(torch.zeros(vocab_size))\n"
    "        self.unembed = lambda x: unembed(x, self.weight) + self.bias",
    caught_by="its only parameter is `weight`, V rows of D numbers",
)
edit(
    "TokenEmbedding",
    "the way out is a copy made when the layer is made",
    old="std=0.02)",
    new="std=0.02)\n        copied = self.weight.detach().clone()\n        self.unembed = lambda x: unembed(x, copied)",
    caught_by="one table serves both ways: change it and both change",
)
edit(
    "TokenEmbedding",
    "the transposed table kept from the first use",
    old="return unembed(x, self.weight)",
    new='self.__dict__.setdefault("kept", self.weight.T.clone())\n        return x @ self.kept',
    caught_by="one table serves both ways: change it and both change",
)
edit(
    "TokenEmbedding",
    "a tensor that is not a parameter",
    old="self.weight = nn.Parameter(torch.empty(vocab_size, d_model))",
    new='self.register_buffer("weight", torch.empty(vocab_size, d_model))',
    caught_by="its only parameter is `weight`, V rows of D numbers",
)
edit(
    "TokenEmbedding",
    "forward scaled by sqrt(D), unembed not",
    old="embed(ids, self.weight)",
    new="embed(ids, self.weight) * self.weight.shape[1] ** 0.5",
    caught_by="forward gives each id's row of `weight`, unscaled",
)
edit(
    "TokenEmbedding",
    "unembed divided by sqrt(D)",
    old="unembed(x, self.weight)",
    new="unembed(x, self.weight) / x.shape[-1] ** 0.5",
    caught_by="unembed scores by the rows of `weight`, unscaled",
)
edit(
    "TokenEmbedding",
    "no gradient through the way out",
    old="unembed(x, self.weight)",
    new="unembed(x, self.weight.detach())",
    caught_by="the table learns from both ways at once",
)
edit(
    "TokenEmbedding",
    "no gradient through the way in",
    old="embed(ids, self.weight)",
    new="embed(ids, self.weight.data)",
    caught_by="the table learns from both ways at once",
)
edit(
    "TokenEmbedding",
    "standard deviation 1",
    old="std=0.02",
    new="std=1.0",
    caught_by="a new table is normal, with mean 0 and standard deviation 0.02",
)
edit(
    "TokenEmbedding",
    "standard deviation 1/sqrt(D)",
    old="std=0.02",
    new="std=d_model**-0.5",
    caught_by="a new table is normal, with mean 0 and standard deviation 0.02",
)
edit(
    "TokenEmbedding",
    "all rows alike",
    old="nn.init.normal_(self.weight, mean=0.0, std=0.02)",
    new="self.weight.data[:] = torch.randn(d_model) * 0.02",
    caught_by="a new table is normal, with mean 0 and standard deviation 0.02",
)
edit(
    "TokenEmbedding",
    "a seed set in the layer",
    old="nn.init.normal_(",
    new="torch.manual_seed(0)\n        nn.init.normal_(",
    caught_by="each new table is drawn afresh",
)
edit(
    "TokenEmbedding",
    "a bare lookup: -1 gives the last row",
    old="embed(ids, self.weight)",
    new="self.weight[ids]",
    caught_by="an id outside the table is a ValueError that names it",
)
edit(
    "TokenEmbedding",
    "an empty table allowed",
    old="if size < 1:",
    new="if size < 0:",
    caught_by="a size below 1 is a ValueError that names the argument",
)
edit(
    "TokenEmbedding",
    "the scores brought to float32",
    old="unembed(x, self.weight)",
    new="unembed(x, self.weight).float()",
    caught_by="moved to float64 it computes in float64",
)
