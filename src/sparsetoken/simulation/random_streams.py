"""Random streams that depend on what is simulated and on the trial's number, and on nothing else."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["stream"]


def stream(seed: int, settings: Mapping[str, Any], trial: int) -> np.random.Generator:
    """Return the generator of one trial.

    The settings enter by a hash of their values, so that trials of two settings are independent and
    a trial is the same in any process, in any order and on any machine.
    """
    text = json.dumps({"seed": int(seed), **settings}, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).digest()
    entropy = int.from_bytes(digest, "little")
    return np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(int(trial),)))
