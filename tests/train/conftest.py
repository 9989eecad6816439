"""One tiny model for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from local.tiny import tiny_model

from warpsmith.rl.train.policy import Policy, load_policy
from warpsmith.rl.train.settings import LoraSettings, ModelSettings


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def policy(folder: Path) -> Policy:
    return load_policy(ModelSettings(path=folder, device="cpu", lora=LoraSettings(rank=8, alpha=16.0)))


def moved(policy: Policy, seed: int = 0) -> Policy:
    """The policy with adapters that change what it says: fresh ones change nothing."""
    import torch

    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for one in policy.trained().values():
            one.add_(0.1 * torch.randn(one.shape, generator=draw))
    policy.set_version(policy.version + 1)
    return policy
