"""Networks for bags to compare with, in the manner of scikit-learn: gated attention, torchmil's ABMIL.

Tokens are standardised; bags of one batch are padded, and the padding is masked. AdamW at 1e-3 with
weight decay 1e-2, batches of 32, as many epochs as give 1,000 steps, but at least 60. Several
classes: one output each.
"""

from typing import Any, Self

import numpy as np
import torch
from torch import nn

LEAST_EPOCHS = 60
LEAST_STEPS = 1000
BATCH = 32
UNITS = 64


class GatedNetwork:
    """Gated attention (Ilse et al. 2018): 64-unit embedding and gate, one linear classifier."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fit(self, X: list[np.ndarray], y: np.ndarray) -> Self:
        """Train on bags (L_i, d) with their classes."""
        torch.set_num_threads(1)
        torch.manual_seed(self.seed)
        tokens = np.concatenate([np.asarray(x, dtype=np.float32) for x in X])
        self.location = tokens.mean(axis=0)
        self.scale = np.where(tokens.std(axis=0) > 0, tokens.std(axis=0), 1)
        self.classes_ = np.unique(y)
        outputs = 1 if len(self.classes_) == 2 else len(self.classes_)
        self.network = self._network(tokens.shape[1], outputs)
        targets = torch.from_numpy(np.searchsorted(self.classes_, y))
        optimiser = torch.optim.AdamW(self.network.parameters(), lr=1e-3, weight_decay=1e-2)
        binary, several = torch.nn.BCEWithLogitsLoss(), torch.nn.CrossEntropyLoss()
        steps_an_epoch = -(-len(X) // BATCH)
        self.network.train()
        for _ in range(max(LEAST_EPOCHS, -(-LEAST_STEPS // steps_an_epoch))):
            for batch in torch.randperm(len(X)).split(BATCH):
                bags, mask = self._padded([X[i] for i in batch])
                optimiser.zero_grad()
                decisions = self._decisions(bags, mask)
                if outputs == 1:
                    loss = binary(decisions[:, 0], targets[batch].float())
                else:
                    loss = several(decisions, targets[batch])
                loss.backward()
                optimiser.step()
        return self

    def decision_function(self, X: list[np.ndarray]) -> np.ndarray:
        """Return (n,) for two classes, else (n, classes)."""
        self.network.eval()
        with torch.no_grad():
            parts = [
                self._decisions(*self._padded(X[start : start + BATCH])).numpy()
                for start in range(0, len(X), BATCH)
            ]
        decisions = np.concatenate(parts)
        return decisions[:, 0] if decisions.shape[1] == 1 else decisions

    def predict(self, X: list[np.ndarray]) -> np.ndarray:
        """Return the class of each bag."""
        decisions = self.decision_function(X)
        codes = (decisions > 0).astype(int) if decisions.ndim == 1 else decisions.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def attention(self, X: list[np.ndarray]) -> list[np.ndarray]:
        """Return the weights of each bag's tokens."""
        with torch.no_grad():
            bags, mask = self._padded(X)
            weights = self.network(bags, mask)[1].numpy()
        return [row[: len(x)] for row, x in zip(weights, X, strict=True)]

    def _padded(self, X: list[np.ndarray]) -> tuple[Any, Any]:
        longest = max(map(len, X))
        bags = np.zeros((len(X), longest, len(self.location)), dtype=np.float32)
        mask = np.zeros((len(X), longest), dtype=bool)
        for row, x in enumerate(X):
            bags[row, : len(x)] = (x - self.location) / self.scale
            mask[row, : len(x)] = True
        return torch.from_numpy(bags), torch.from_numpy(mask)

    def _decisions(self, bags: Any, mask: Any) -> Any:
        return self.network(bags, mask)[0]

    def _network(self, dimension: int, outputs: int) -> Any:
        class GatedAttention(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embed = nn.Sequential(nn.Linear(dimension, UNITS), nn.ReLU())
                self.content, self.gate = nn.Linear(UNITS, UNITS), nn.Linear(UNITS, UNITS)
                self.score, self.classify = nn.Linear(UNITS, 1), nn.Linear(UNITS, outputs)

            def forward(self, bags: Any, mask: Any) -> tuple[Any, Any]:
                tokens = self.embed(bags)
                gated = torch.tanh(self.content(tokens)) * torch.sigmoid(self.gate(tokens))
                scores = self.score(gated).squeeze(-1).masked_fill(~mask, -torch.inf)
                attention = torch.softmax(scores, dim=1)
                pooled = torch.einsum("nl,nld->nd", attention, tokens)
                return self.classify(pooled), attention

        return GatedAttention()


class TorchmilNetwork(GatedNetwork):
    """ABMIL as the package torchmil has it, gated, with a 64-unit embedding.

    Its last layer has one output; for several classes it is replaced by one with an output each.
    """

    def __init__(self, seed: int) -> None:
        from torchmil.models import ABMIL  # here, so that a fit's time has no import in it

        super().__init__(seed)
        self.architecture = ABMIL

    def _network(self, dimension: int, outputs: int) -> Any:
        embed = nn.Sequential(nn.Linear(dimension, UNITS), nn.ReLU())
        network = self.architecture(
            in_shape=(dimension,), att_dim=UNITS, gated=True, feat_ext=embed
        )
        if outputs > 1:
            network.classifier = nn.Linear(UNITS, outputs)
        return network

    def _decisions(self, bags: Any, mask: Any) -> Any:
        return self.network(bags, mask).reshape(len(bags), -1)
