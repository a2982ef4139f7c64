"""Bags of 8×8 digits, positive if they hold a '9': attention against a network and pooling.

Each positive bag holds exactly one '9'; train and test images are disjoint halves of scikit-learn's
digits; 500 training and 1,000 test bags. One pipeline and one set of parameters for all lengths,
chosen on seeds from 100 on. Seconds are processor seconds of one thread, so that a busy machine
slows neither down.

    python benchmarks/digit_bags.py                        # needs the `bench` extra, for torch
    python benchmarks/digit_bags.py --without-network --first-seed 100
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from sparsetoken import AttentionClassifier, DigitBags, TokenWise, digit_bags, localisation_score

LENGTHS = (10, 20, 50)


@dataclass(frozen=True)
class Result:
    """One fit. Localisation is None for models without attention."""

    model: str
    length: int
    seed: int
    accuracy: float
    localisation: float | None
    seconds: float


def attention_pipeline(seed: int) -> Pipeline:
    return make_pipeline(
        TokenWise(Nystroem(gamma=0.14, n_components=250, random_state=seed)),
        AttentionClassifier(refine=True, tied=True, ridge=0.02),
    )


def run_attention(
    train: DigitBags, test: DigitBags, seed: int
) -> tuple[float, float | None, float]:
    pipeline = attention_pipeline(seed)
    seconds = _timed(lambda: pipeline.fit(train.X, train.y))
    attention = pipeline[-1].attention(pipeline[:-1].transform(test.X))
    accuracy = float(pipeline.score(test.X, test.y))
    return accuracy, localisation_score(attention, test.positions), seconds


def run_pooling(
    how: str,
) -> Callable[[DigitBags, DigitBags, int], tuple[float, float | None, float]]:
    def run(train: DigitBags, test: DigitBags, seed: int) -> tuple[float, float | None, float]:
        del seed
        pooled = FunctionTransformer(getattr(np, how), kw_args={"axis": 1})
        pipeline = make_pipeline(pooled, StandardScaler(), LogisticRegression(max_iter=1000))
        seconds = _timed(lambda: pipeline.fit(train.X, train.y))
        return float(pipeline.score(test.X, test.y)), None, seconds

    return run


def run_network(train: DigitBags, test: DigitBags, seed: int) -> tuple[float, float | None, float]:
    """Gated attention: 64-unit embedding and gate, AdamW at 1e-3, 60 epochs of batches of 32."""
    import torch
    from torch import nn

    class GatedAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
            self.content, self.gate = nn.Linear(64, 64), nn.Linear(64, 64)
            self.score, self.classify = nn.Linear(64, 1), nn.Linear(64, 1)

        def forward(self, bags: Any) -> tuple[Any, Any]:
            tokens = self.embed(bags)
            gated = torch.tanh(self.content(tokens)) * torch.sigmoid(self.gate(tokens))
            attention = torch.softmax(self.score(gated).squeeze(-1), dim=1)
            pooled = torch.einsum("nl,nld->nd", attention, tokens)
            return self.classify(pooled).squeeze(-1), attention

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    network = GatedAttention()
    X, y = torch.from_numpy(train.X), torch.from_numpy(train.y.astype(np.float32))
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3)
    loss = nn.BCEWithLogitsLoss()

    def fit() -> None:
        for _ in range(60):
            for batch in torch.randperm(len(X)).split(32):
                optimiser.zero_grad()
                loss(network(X[batch])[0], y[batch]).backward()
                optimiser.step()

    seconds = _timed(fit)
    with torch.no_grad():
        decisions, attention = network(torch.from_numpy(test.X))
    accuracy = float(np.mean((decisions.numpy() > 0) == test.y))
    return accuracy, localisation_score(attention.numpy(), test.positions), seconds


def _timed(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


MODELS = {
    "mean pooling": run_pooling("mean"),
    "max pooling": run_pooling("max"),
    "attention": run_attention,
    "gated network": run_network,
}


def table(results: list[Result]) -> str:
    """Return a Markdown table of means ± standard errors over seeds."""
    lines = [
        "| L | model | accuracy | localisation | fit seconds |",
        "|---|---|---|---|---|",
    ]
    for length in sorted({result.length for result in results}):
        for model in MODELS:
            some = [r for r in results if (r.length, r.model) == (length, model)]
            if not some:
                continue
            located = [r.localisation for r in some if r.localisation is not None]
            cells = [_shown([r.accuracy for r in some]), _shown(located) if located else "–"]
            seconds = f"{np.mean([r.seconds for r in some]):.2f}"
            lines.append(f"| {length} | {model} | {cells[0]} | {cells[1]} | {seconds} |")
    return "\n".join(lines)


def verdict(results: list[Result]) -> list[str]:
    """Return, for each length, by how much attention leads the network, paired over seeds."""
    lines = []
    for length in sorted({result.length for result in results}):
        ours, theirs = (
            sorted(
                (r for r in results if (r.length, r.model) == (length, name)), key=lambda r: r.seed
            )
            for name in ("attention", "gated network")
        )
        if not (ours and theirs):
            continue
        accuracy = [a.accuracy - b.accuracy for a, b in zip(ours, theirs, strict=True)]
        located = [
            (a.localisation or 0) - (b.localisation or 0) for a, b in zip(ours, theirs, strict=True)
        ]
        ratio = np.sum([r.seconds for r in theirs]) / np.sum([r.seconds for r in ours])
        lines.append(
            f"L = {length}: accuracy {_shown(accuracy, '+')}, localisation {_shown(located, '+')}, "
            f"{ratio:.1f} times as fast as the network"
        )
    return lines


def _shown(values: list[float], sign: str = "") -> str:
    if len(values) < 2:
        return f"{np.mean(values):{sign}.3f}"
    return f"{np.mean(values):{sign}.3f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--without-network", action="store_true")
    parser.add_argument("--json", type=Path, help="write every fit to this file")
    options = parser.parse_args()
    chosen = {
        n: m for n, m in MODELS.items() if n != "gated network" or not options.without_network
    }
    results = []
    for length in options.lengths:
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            train, test = digit_bags(length, seed=seed)
            for name, run in chosen.items():
                results.append(Result(name, length, seed, *run(train, test, seed)))
                print(results[-1], flush=True)
    print(table(results), *verdict(results), sep="\n")
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")


if __name__ == "__main__":
    main()
