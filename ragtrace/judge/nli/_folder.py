"""The folder of a verifier: an ONNX file, ``tokenizer.json`` and ``config.json``, as on the hub."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ragtrace.errors import ConfigError
from ragtrace.judge.nli._address import NliAddress
from ragtrace.judge.nli._families import Described

log = logging.getLogger("ragtrace.judge")

TOKENIZER: Final = "tokenizer.json"
CONFIG: Final = "config.json"
_TOKENIZER_CONFIG: Final = "tokenizer_config.json"
_MOST_BYTES: Final = 2 << 30
_MOST_JSON_BYTES: Final = 64 << 20
_JSON_FILES: Final = (CONFIG, TOKENIZER, _TOKENIZER_CONFIG)
_PREFERRED: Final = ("model.onnx", "onnx/model.onnx", "onnx/model_quantized.onnx", "onnx/model_int8.onnx")
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SAMPLE_BYTES: Final = 1 << 20
_BEFORE_TEXT: Final = 2
"""Positions that RoBERTa's models keep for themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """The files of a verifier, checked as far as possible without loading it."""

    name: str
    """For scores: the hub's name, or the folder's."""
    onnx: Path
    tokenizer: Path
    described: Described
    positions: int | None
    """The most tokens that the model was made for, if its files say so."""
    digest: str
    """Changes with the files."""

    @classmethod
    def open(cls, address: NliAddress) -> ModelFolder:
        """Find a model's files, which are downloaded first if the address is a name on the hub.

        Raises:
            ConfigError: a file is missing, too large or malformed; the message names it.
        """
        path = Path(address.where).expanduser()
        if path.is_dir():
            return cls._of(path, path.name or path.resolve().name, address)
        if path.exists():
            raise ConfigError(
                f"the judge's model {str(path)!r} is no folder: name the folder that holds {CONFIG}"
            )
        if not _REPOSITORY.fullmatch(address.where):
            raise ConfigError(f"there is no folder {str(path)!r} with a model for the judge `nli`")
        return cls._of(downloaded(address), address.where, address)

    @classmethod
    def _of(cls, folder: Path, name: str, address: NliAddress) -> ModelFolder:
        config, tokenizer = folder / CONFIG, folder / TOKENIZER
        read = _read_config(config)
        if not tokenizer.is_file():
            raise ConfigError(
                f"{folder}: there is no {TOKENIZER}, which the judge `nli` needs beside the model. Export the"
                " model with its fast tokenizer"
            )
        onnx = folder / chosen_file(_names_in(folder), address.file, str(folder))
        _check_size(onnx)
        return cls(
            name=name,
            onnx=onnx,
            tokenizer=tokenizer,
            described=read.described(config, name),
            positions=read.positions(_tokenizer_limit(folder)),
            digest=_digest([config, tokenizer, *_parts(onnx)]),
        )


class _Config(BaseModel):
    """What is read of ``config.json``."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    architectures: list[str] = Field(default_factory=list)
    model_type: str = ""
    id2label: dict[int, str] = Field(default_factory=dict)
    label2id: dict[str, int] = Field(default_factory=dict)
    max_position_embeddings: int | None = None
    original: str = Field(default="", alias="_name_or_path")

    def described(self, path: Path, name: str) -> Described:
        labels = tuple(label for _, label in sorted(self.id2label.items()))
        if sorted(self.id2label) != list(range(len(labels))):
            raise ConfigError(f"{path}: `id2label` does not count from 0 to {len(labels) - 1}")
        if self.label2id and any(self.label2id.get(label, at) != at for at, label in self.id2label.items()):
            raise ConfigError(
                f"{path}: `id2label` and `label2id` contradict each other: the labels seem to be swapped"
            )
        return Described(
            place=str(path),
            names=tuple(filter(None, (self.original, name))),
            model_type=self.model_type,
            architectures=tuple(self.architectures),
            labels=labels,
        )

    def positions(self, tokenizer_limit: int | None) -> int | None:
        own = self.max_position_embeddings
        if own is not None and "roberta" in self.model_type.lower():
            own -= _BEFORE_TEXT
        return min(
            (limit for limit in (own, tokenizer_limit) if limit is not None and limit > 0), default=None
        )


def _read_config(path: Path) -> _Config:
    try:
        return _Config.model_validate(_json(path))
    except ValidationError as exc:
        first = exc.errors()[0]
        raise ConfigError(
            f"{path}: `{'.'.join(map(str, first['loc']))}` is malformed: {first['msg']}"
        ) from None


def _tokenizer_limit(folder: Path) -> int | None:
    path = folder / _TOKENIZER_CONFIG
    if not path.is_file():
        return None
    limit = _json(path).get("model_max_length")
    return int(limit) if isinstance(limit, int | float) and 0 < limit < 2**20 else None  # 1e30: none


def _json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST_JSON_BYTES:
            raise ConfigError(f"{path} is no configuration of a model: it has more than 64 MiB")
        found = json.loads(path.read_bytes())
    except OSError as exc:
        raise ConfigError(f"the judge's model: {str(path)!r} cannot be read: {exc.strerror}") from exc
    except ValueError as exc:
        raise ConfigError(f"{path} is no JSON: {exc}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is no JSON object")
    return found


def chosen_file(names: Iterable[str], wanted: str | None, place: str) -> str:
    """Choose the ONNX file: the one that is wanted, else the usual one, else the only one.

    Raises:
        ConfigError: it is not there, or there are several.
    """
    found = sorted(names)
    if wanted is not None:
        if wanted not in found:
            raise ConfigError(f"{place}: there is no {wanted!r} (ONNX files: {', '.join(found) or 'none'})")
        return wanted
    usual = next((name for name in _PREFERRED if name in found), None)
    if usual or len(found) == 1:
        return usual or found[0]
    if not found:
        raise ConfigError(
            f"{place}: there is no ONNX file. Export one: `optimum-cli export onnx --model MODEL FOLDER`"
        )
    raise ConfigError(
        f"{place} has several ONNX files: choose one with ?file={found[0]} ({', '.join(found)})"
    )


def _names_in(folder: Path) -> Iterator[str]:
    for pattern in ("*.onnx", "onnx/*.onnx"):
        yield from (path.relative_to(folder).as_posix() for path in folder.glob(pattern))


def _parts(onnx: Path) -> list[Path]:
    """Return the file and those that hold its weights, if they are apart."""
    beside = (f"{onnx.name}_data", f"{onnx.name}.data", f"{onnx.stem}.data", "weights.pb")
    return [onnx, *(path for name in beside if (path := onnx.with_name(name)).is_file())]


def _check_size(onnx: Path) -> None:
    size = sum(path.stat().st_size for path in _parts(onnx))
    if size > _MOST_BYTES:
        raise ConfigError(
            f"{onnx} has {size / 2**30:.1f} GiB, more than the 2 GiB that the judge `nli` takes: choose a"
            " smaller"
            " model, or its int8 file with ?file="
        )


def _digest(paths: Iterable[Path]) -> str:
    """Return a digest of sizes, beginnings and ends: weights of a gigabyte are not read twice."""
    found = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            found.update(f"{path.name} {size} ".encode() + file.read(_SAMPLE_BYTES))
            file.seek(max(0, size - _SAMPLE_BYTES))
            found.update(file.read(_SAMPLE_BYTES))
    return found.hexdigest()[:16]


def downloaded(address: NliAddress) -> Path:
    """Return the folder of a model of the hub: from its cache, else downloaded into it.

    A cached model is never asked for again, so that it changes only if somebody says so.

    Raises:
        ConfigError: there is no such model, or no way to it.
    """
    cached = _cached(address)
    try:
        return cached or _from_hub(address)
    except ConfigError:
        raise
    except Exception as exc:
        raise ConfigError(
            f"the judge `nli`: {address.where!r} is not a folder here, and cannot be downloaded from the hub"
            f" ({type(exc).__name__}): check the name and the connection, or download it elsewhere and name"
            " its folder"
        ) from exc


def _cached(address: NliAddress) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(address.where, CONFIG)
    if not isinstance(found, str):
        return None
    folder = Path(found).parent
    try:
        chosen_file(_names_in(folder), address.file, str(folder))
    except ConfigError:
        return None
    return folder if (folder / TOKENIZER).is_file() else None


def _from_hub(address: NliAddress) -> Path:
    from huggingface_hub import HfApi, snapshot_download

    there = HfApi().list_repo_files(address.where)
    onnx = chosen_file(
        (name for name in there if name.endswith(".onnx")), address.file, f"the hub's {address.where}"
    )
    wanted = (*_JSON_FILES, onnx, f"{onnx}_data", f"{onnx}.data")
    log.info("downloading %s of %s from the hub", onnx, address.where)
    return Path(snapshot_download(address.where, allow_patterns=[name for name in wanted if name in there]))
