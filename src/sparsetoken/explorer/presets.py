"""Settings worth a click: the paper's figures, those of the README, and the five steps of the tour.

Each is an address, so that a preset is nothing but a link.
"""

from dataclasses import dataclass

__all__ = ["PRESETS", "TOUR", "Preset"]


@dataclass(frozen=True)
class Preset:
    """A named address of the page, and what to see there."""

    name: str
    address: str
    words: str


PRESETS = (
    Preset(
        "Errors of three models (paper)",
        "view=learning&alpha0=4&query_step=50&start=0.5&stop=50",
        "Test error against samples at L = 10, R = 1, θ = 5, λ = 1e-5.",
    ),
    Preset(
        "Errors against all samples (README)",
        "view=learning&over=alpha&query_step=20&start=0.5&stop=16",
        "How far from the best possible? Attention spends half of its samples on the query.",
    ),
    Preset(
        "Alignment against α0 (paper)",
        "view=query&length=10&informative=3&strength=6&positive_rate=0.2&query_step=0.5"
        "&readout_step=0.5&bias_step=0.5&stop=100",
        "Two gradient steps turn the query to the signal: L = 10, R = 3, π = 0.2, θ = 6.",
    ),
    Preset(
        "Residual error against alignment (paper)",
        "view=learning&given_query=1&over=alignment&alpha1=50&logarithmic=0&sharpness=1.5"
        "&classifiers=attention,pooled&ridge=0.001",
        "Little alignment makes attention worse than pooling; where do the lines cross?",
    ),
    Preset(
        "Required strength against length",
        "view=strength",
        "Attention needs a strength that grows like √log L, linear classifiers like √L.",
    ),
    Preset(
        "Who wins where",
        "view=map&start=1&stop=8",
        "Attention against pooling over strength and samples.",
    ),
)

TOUR = (
    Preset(
        "1. Why pooling fails",
        "view=strength",
        "A signal in one token of L. A linear classifier sees the average of all tokens, and the "
        "signal drowns in it: it needs a strength of order √L. Attention can pick the token out: "
        "√(2 log L) is enough.",
    ),
    Preset(
        "2. What two steps learn",
        "view=query&stop=100",
        "Two gradient steps on fresh data turn the query towards the signal. The more samples "
        "(α0), the closer: 1 - cosine falls like 1/α0.",
    ),
    Preset(
        "3. When it goes wrong",
        "view=turning&strength=2&alpha0=20",
        "Rare positives and badly chosen steps turn the query away from the signal (negative "
        "cosine): attention then looks at everything but the signal. Move the steps and see the "
        "boundary move.",
    ),
    Preset(
        "4. Capacity",
        "view=capacity&given_query=1&stop=6",
        "Up to how many samples can a readout fit everything without error? A well aligned query "
        "raises it by far.",
    ),
    Preset(
        "5. Length",
        "view=shift&alpha0=8&alpha1=8&ridge=0.01&query_step=40&length=20",
        "Trained on 20 tokens and used on thousands, a classifier fails: the same sharpness spreads "
        "attention over more noise. A sharper softmax and a moved bias nearly repair it.",
    ),
)
