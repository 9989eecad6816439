"""Log-probabilities of decisions, each over the tokens that were allowed where it was made.

Nothing is computed at forced tokens. Products with the output layer are taken for allowed tokens alone: those of all
short sets of a part of a batch at once, long sets in pieces that are computed again in the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from warpsmith.agents.local.batch import gaps_fit, padded
from warpsmith.agents.local.decisions import AllowedSet, Decisions
from warpsmith.kernels.errors import UserError

MOST_LOGITS = 1 << 23
"""Logits of long sets that exist at once."""
PROBED = 512
"""Tokens whose logits are compared when a model is loaded."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some replies as tensors: prompts that are the same once, decisions in columns."""

    prompts: Tensor
    """[prompts, longest] tokens but the last, right-padded."""
    prompt_mask: Tensor
    rows: Tensor
    """[replies] index of the prompt."""
    tokens: Tensor
    """[replies, longest]: the prompt's last token and the reply but its last, right-padded."""
    token_mask: Tensor
    at: Tensor
    """[replies, decisions] index into `tokens` of what a decision was read from."""
    mask: Tensor
    """[replies, decisions] 1 where there is a decision."""
    behaviour: Tensor
    """[replies, decisions] log-probability under the distribution it was drawn from."""
    temperature: Tensor
    """[replies, decisions]."""
    short: _Short | None
    long: tuple[_Long, ...]

    @property
    def count(self) -> int:
        """Tokens that the model reads."""
        return int(self.prompt_mask.sum()) + int(self.token_mask.sum())


@dataclass(frozen=True, slots=True)
class _Short:
    """Decisions between few tokens."""

    union: Tensor
    """[tokens] ids of all sets."""
    cells: Tensor
    """[n] flat index into [replies, decisions]."""
    places: Tensor
    """[n, most] index into `union`."""
    legal: Tensor
    """[n, most] whether there is a token."""
    taken: Tensor
    """[n] place of the token that was taken."""


@dataclass(frozen=True, slots=True)
class _Long:
    """Decisions with one set of many tokens."""

    ids: Tensor
    cells: Tensor
    taken: Tensor


def packed(replies: Sequence[Decisions], device: Any) -> Part:
    """Tensors of some replies on a device."""
    prompts = list(dict.fromkeys(one.prompt_ids for one in replies))
    head, head_mask, _ = padded([one[:-1] for one in prompts], "right")
    tokens, token_mask, _ = padded([(one.prompt_ids[-1], *one.completion_ids[:-1]) for one in replies], "right")
    where = [[at for at, place in enumerate(one.allowed) if place >= 0] for one in replies]
    columns, mask, _ = padded([*where, [0]], "right")
    columns, mask = columns[:-1], mask[:-1]
    behaviour = np.zeros(mask.shape, dtype=np.float32)
    temperature = np.ones(mask.shape, dtype=np.float32)
    sets: dict[AllowedSet, list[tuple[int, int]]] = {}
    for row, (one, places) in enumerate(zip(replies, where, strict=True)):
        behaviour[row, : len(places)] = [one.logprobs[at] for at in places]
        temperature[row, : len(places)] = one.temperature
        for column, at in enumerate(places):
            cell = row * mask.shape[1] + column
            sets.setdefault(one.sets[one.allowed[at]], []).append((cell, one.completion_ids[at]))
    rows = torch.tensor([prompts.index(one.prompt_ids) for one in replies])
    short = {one: cells for one, cells in sets.items() if one.listed is not None}
    long = tuple(_long(one.ids, cells, device) for one, cells in sets.items() if one.listed is None)
    return Part(
        prompts=head.to(device), prompt_mask=head_mask.to(device), rows=rows.to(device), tokens=tokens.to(device),
        token_mask=token_mask.to(device), at=columns.to(device), mask=mask.float().to(device),
        behaviour=torch.from_numpy(behaviour).to(device), temperature=torch.from_numpy(temperature).to(device),
        short=_short(short, device) if short else None, long=long,
    )  # fmt: skip


def _short(sets: dict[AllowedSet, list[tuple[int, int]]], device: Any) -> _Short:
    union = np.unique(np.concatenate([one.ids for one in sets]))
    most = max(len(one.ids) for one in sets)
    cells, places, legal, taken = [], [], [], []
    for one, members in sets.items():
        ids = one.ids
        row = np.zeros(most, dtype=np.int64)
        row[: len(ids)] = np.searchsorted(union, ids)
        for cell, token in members:
            cells.append(cell)
            places.append(row)
            legal.append(np.arange(most) < len(ids))
            taken.append(int(np.searchsorted(ids, token)))
    return _Short(
        torch.from_numpy(union).to(device), torch.tensor(cells, device=device),
        torch.from_numpy(np.stack(places)).to(device), torch.from_numpy(np.stack(legal)).to(device),
        torch.tensor(taken, device=device),
    )  # fmt: skip


def _long(ids: Any, members: list[tuple[int, int]], device: Any) -> _Long:
    taken = np.searchsorted(ids, [token for _, token in members])
    cells = torch.tensor([cell for cell, _ in members], device=device)
    return _Long(torch.from_numpy(ids).to(device), cells, torch.from_numpy(taken).to(device))


class Head:
    """The output layer: hidden states to logits of chosen tokens."""

    def __init__(self, model: Any) -> None:
        """UserError where the model's logits are not what its output layer and the known scalings give."""
        self._layer = model.get_output_embeddings()
        config = model.config.get_text_config()
        self._cap: float | None = getattr(config, "final_logit_softcapping", None)
        scaling = getattr(config, "logits_scaling", None)
        self._scale = float(getattr(config, "logit_scale", None) or (1 / scaling if scaling else 1.0))
        if type(self._layer) is not torch.nn.Linear or not self._agrees(model):
            raise UserError(
                f"training: {type(model).__name__} computes its logits in a way that is not known here; take another "
                "model, and leave the output layer out of the adapter's targets"
            )

    def weight(self, ids: Tensor) -> Tensor:
        """Float32 rows of the layer, [tokens, hidden]."""
        rows: Tensor = self._layer.weight[ids].float()
        return rows

    def logits(self, hidden: Tensor, weight: Tensor, ids: Tensor) -> Tensor:
        """Float32 [n, tokens] of [n, hidden] and rows from `weight`."""
        bias = None if self._layer.bias is None else self._layer.bias[ids].float()
        found = torch.nn.functional.linear(hidden.float(), weight, bias) * self._scale
        return found if self._cap is None else torch.tanh(found / self._cap) * self._cap

    def _agrees(self, model: Any) -> bool:
        ids = torch.tensor([[1, 2, 3]], device=model.device)
        with torch.no_grad():
            hidden = body(model)(input_ids=ids, use_cache=False).last_hidden_state[0]
            expected = model(input_ids=ids, use_cache=False).logits[0].float()
            some = torch.arange(0, expected.shape[1], max(expected.shape[1] // PROBED, 1), device=model.device)
            found = self.logits(hidden, self.weight(some), some)
            # What bfloat16 rounds off the model's own logits is within.
            return bool((found - expected[:, some]).abs().max() <= 2e-2 * expected.abs().max().clamp(min=1e-6))


def body(model: Any) -> Any:
    """The model without its output layer."""
    return getattr(model, model.base_model_prefix)


def cache_fits(model: Any, cache_name: str) -> bool:
    """Whether the model's cache lets replies share what was read of their prompt."""
    ids = torch.tensor([[1, 2]], device=model.device)
    with torch.no_grad():
        return gaps_fit(getattr(body(model)(input_ids=ids, use_cache=True), cache_name, None))


def decision_logprobs(
    model: Any, head: Head, part: Part, *, cache_name: str, share_prompts: bool, most_logits: int = MOST_LOGITS
) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies, [replies, decisions] in float32, 0 where there is no decision. `share_prompts`:
    a prompt is read once for all its replies, where the model's cache allows it. `most_logits`: of long sets at a
    time."""
    hidden = _shared(model, part, cache_name) if share_prompts and part.prompts.shape[1] else None
    if hidden is None:
        hidden = _apart(model, part)
    with torch.autocast(hidden.device.type, enabled=False):
        return _over_allowed(head, part, hidden, most_logits)


def _shared(model: Any, part: Part, cache_name: str) -> Tensor | None:
    """[replies, tokens, hidden]; None where the cache cannot hold gaps."""
    inner = body(model)
    positions = (part.prompt_mask.cumsum(1) - 1).clamp(min=0)
    read = inner(input_ids=part.prompts, attention_mask=part.prompt_mask, position_ids=positions, use_cache=True)
    cache = getattr(read, cache_name)
    if not gaps_fit(cache):
        return None
    cache.batch_select_indices(part.rows)
    mask = torch.cat([part.prompt_mask[part.rows], part.token_mask], dim=1)
    positions = part.prompt_mask.sum(1)[part.rows, None] + torch.arange(part.tokens.shape[1], device=mask.device)
    out = inner(
        input_ids=part.tokens, attention_mask=mask, position_ids=positions, use_cache=True, **{cache_name: cache}
    )  # fmt: skip
    hidden: Tensor = out.last_hidden_state
    return hidden


def _apart(model: Any, part: Part) -> Tensor:
    """[replies, tokens, hidden], each reply with its prompt. Gaps lie behind both: one in between would count for the
    width of a sliding window."""
    ids = torch.cat([part.prompts[part.rows], part.tokens], dim=1)
    mask = torch.cat([part.prompt_mask[part.rows], part.token_mask], dim=1)
    order = torch.argsort(1 - mask, dim=1, stable=True)
    ids, mask = ids.gather(1, order), mask.gather(1, order)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    out = body(model)(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False)
    hidden: Tensor = out.last_hidden_state
    begin = part.prompt_mask.sum(1)[part.rows, None]
    index = (begin + torch.arange(part.tokens.shape[1], device=ids.device)).clamp(max=ids.shape[1] - 1)
    return hidden.gather(1, index[:, :, None].expand(-1, -1, hidden.shape[2]))


def _over_allowed(head: Head, part: Part, hidden: Tensor, most_logits: int) -> tuple[Tensor, Tensor]:
    rows, columns = part.at.shape
    index = part.at[:, :, None].expand(-1, -1, hidden.shape[2])
    read = hidden.gather(1, index).reshape(rows * columns, -1)
    temperature = part.temperature.reshape(-1, 1)
    cells, logprobs, entropies = [], [], []
    if part.short is not None:
        short = part.short
        logits = head.logits(read[short.cells], head.weight(short.union), short.union).gather(1, short.places)
        logits = (logits / temperature[short.cells]).masked_fill(~short.legal, -torch.inf)
        found = _chosen(logits, short.taken)
        cells, logprobs, entropies = [short.cells], [found[0]], [found[1]]
    for one in part.long:
        weight = head.weight(one.ids)
        size = max(most_logits // len(one.ids), 1)
        for at, taken in zip(torch.split(one.cells, size), torch.split(one.taken, size), strict=True):
            found = checkpoint(
                _long_chosen, head, read[at], weight, one.ids, temperature[at], taken, use_reentrant=False
            )
            cells.append(at)
            logprobs.append(found[0])
            entropies.append(found[1])
    empty = torch.zeros(rows * columns, device=read.device)
    if not cells:
        return (read.sum() * 0.0 + empty).view(rows, columns), empty.view(rows, columns)
    where = torch.cat(cells)
    filled = [empty.index_put((where,), torch.cat(one)).view(rows, columns) for one in (logprobs, entropies)]
    return filled[0], filled[1]


def _long_chosen(head: Head, read: Tensor, weight: Tensor, ids: Tensor, temperature: Tensor, taken: Tensor) -> Any:
    return _chosen(head.logits(read, weight, ids) / temperature, taken)


def _chosen(logits: Tensor, taken: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability of the token that was taken, and the entropy, [n] each."""
    every = torch.log_softmax(logits, dim=1)
    finite = every.masked_fill(every == -torch.inf, 0.0)
    return every.gather(1, taken[:, None])[:, 0], -(every.exp() * finite).sum(1)
