"""Small networks on plain sequences, trained by torch, which only this module needs."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.reproduce.measurement import measures
from sparsetoken.simulation.random_streams import stream
from sparsetoken.task import Task

__all__ = ["NETWORKS", "network_trial"]

# Of the samples, to choose the step at which training stops and the ridge.
VALIDATION = 0.25
# Steps of limited-memory BFGS between two looks at the validation loss, and looks without a better
# one after which training stops.
STEPS_A_ROUND = 3
PATIENCE = 8
UNITS = 32
HEADS = 4


def _attention(torch: Any, dimension: int, heads: int) -> Any:
    """Return `heads` queries, each with a readout of its own, and their sum."""

    class Attention(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.queries = torch.nn.Linear(dimension, heads, bias=False)
            self.values = torch.nn.Linear(dimension, heads, bias=False)
            self.bias = torch.nn.Parameter(torch.zeros(1))

        def forward(self, tokens: Any) -> Any:
            weights = torch.softmax(self.queries(tokens), dim=1)
            return (weights * self.values(tokens)).sum(dim=(1, 2)) + self.bias

    return Attention()


def _two_layers(torch: Any, dimension: int) -> Any:
    """Return self-attention with query, key and value matrices, added to the tokens, then a head."""

    class TwoLayers(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key = (torch.nn.Linear(dimension, UNITS, bias=False) for _ in range(2))
            self.value = torch.nn.Linear(dimension, dimension, bias=False)
            self.head = _attention(torch, dimension, 1)

        def forward(self, tokens: Any) -> Any:
            scores = self.query(tokens) @ self.key(tokens).transpose(1, 2) / UNITS**0.5
            return self.head(tokens + torch.softmax(scores, dim=2) @ self.value(tokens))

    return TwoLayers()


def _pooled(torch: Any, dimension: int, largest: bool) -> Any:
    """Return a linear classifier of the mean token, or of the largest of linear features."""

    class Pooled(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.features = torch.nn.Linear(dimension, UNITS) if largest else torch.nn.Identity()
            self.classify = torch.nn.Linear(UNITS if largest else dimension, 1)

        def forward(self, tokens: Any) -> Any:
            found = self.features(tokens)
            return self.classify(found.amax(dim=1) if largest else found.mean(dim=1)).squeeze(-1)

    return Pooled()


def _recurrent(torch: Any, dimension: int) -> Any:
    """Return gated recurrent units that read the tokens in order, and a classifier of their end."""

    class Recurrent(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.units = torch.nn.GRU(dimension, UNITS, batch_first=True)
            self.classify = torch.nn.Linear(UNITS, 1)

        def forward(self, tokens: Any) -> Any:
            return self.classify(self.units(tokens)[1][0]).squeeze(-1)

    return Recurrent()


NETWORKS: Mapping[str, Callable[[Any, int], Any]] = {
    "one head": lambda torch, dimension: _attention(torch, dimension, 1),
    "four heads": lambda torch, dimension: _attention(torch, dimension, HEADS),
    "two layers": _two_layers,
    "mean pooling": lambda torch, dimension: _pooled(torch, dimension, largest=False),
    "max pooling": lambda torch, dimension: _pooled(torch, dimension, largest=True),
    "recurrent": _recurrent,
}


@measures("simulation", shown=("dimension", "network", "signals"))
def network_trial(
    task: Task,
    total: float,
    network: str,
    ridges: list[float],
    most_rounds: int,
    fresh: int,
    dimension: int,
    trial: int,
    signals: int = 1,
    seed: int = 0,
) -> dict[str, Any]:
    """Train a network on αd sequences, a quarter of them for validation; count errors on fresh ones.

    All networks see the same data. Each positive sequence carries one of `signals` orthogonal
    directions. Limited-memory BFGS makes loss and ridge small until the validation loss stops
    falling; the ridge with the least validation loss is kept, and its network at the best step.
    """
    import torch

    torch.set_num_threads(1)
    settings = {"only": "network", "task": task.to_dict(), "total": total, "signals": signals}
    rng = stream(seed, {**settings, "dimension": dimension}, trial)
    directions = np.linalg.qr(rng.standard_normal((dimension, signals)))[0].T
    count = round(total * dimension)
    tokens, labels = _sequences(task, directions, count + fresh, rng)
    X, y = torch.from_numpy(tokens), torch.from_numpy(labels)
    kept = round((1 - VALIDATION) * count)
    train, validation = ((X[a:b], y[a:b]) for a, b in ((0, kept), (kept, count)))
    ends = []
    for ridge in ridges:
        torch.manual_seed(1000 * seed + trial)
        model = NETWORKS[network](torch, dimension)
        ends.append((*_train(torch, model, train, validation, ridge, most_rounds), ridge, model))
    loss, steps, ridge, model = min(ends, key=lambda end: end[0])
    with torch.no_grad():
        wrong = (torch.sign(model(X[count:])) != y[count:]).double().mean()
    return {
        "test_error": float(wrong),
        "validation_loss": loss,
        "steps_taken": steps,
        "ridge": ridge,
    }


def _sequences(
    task: Task, directions: Array, count: int, rng: np.random.Generator
) -> tuple[Any, Any]:
    """Draw sequences (count, L, d) and labels ±1, in single precision."""
    y = np.where(rng.random(count) < task.positive_rate, 1, -1)
    X = rng.standard_normal((count, task.length, directions.shape[1]), dtype=np.float32)
    for row in np.flatnonzero(y > 0):
        places = rng.choice(task.length, task.fixed_informative, replace=False)
        X[row, places] += task.strength * directions[rng.integers(len(directions))]
    return X, y.astype(np.float32)


def _train(
    torch: Any, model: Any, train: Any, validation: Any, ridge: float, most_rounds: int
) -> tuple[float, int]:
    """Train until the validation loss stops falling; leave the best parameters in the model."""
    parameters = list(model.parameters())
    loss_of = torch.nn.functional.softplus
    optimiser = torch.optim.LBFGS(parameters, max_iter=STEPS_A_ROUND, line_search_fn="strong_wolfe")

    def objective() -> Any:
        optimiser.zero_grad()
        penalty = sum((part**2).sum() for part in parameters if part.dim() > 1)
        value = loss_of(-train[1] * model(train[0])).mean() + ridge / 2 * penalty
        value.backward()
        return value

    best, best_round, kept = np.inf, 0, model.state_dict()
    for number in range(1, most_rounds + 1):
        optimiser.step(objective)
        with torch.no_grad():
            seen = float(loss_of(-validation[1] * model(validation[0])).mean())
        if seen < best:
            best, best_round = seen, number
            kept = {name: value.clone() for name, value in model.state_dict().items()}
        elif number - best_round > PATIENCE:
            break
    model.load_state_dict(kept)
    return best, STEPS_A_ROUND * best_round
