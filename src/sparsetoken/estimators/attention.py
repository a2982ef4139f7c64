"""Classifiers with attention: softmax, or element by element."""

from typing import Any, ClassVar

from sparsetoken.estimators.attending import Attending
from sparsetoken.estimators.base import Check
from sparsetoken.estimators.pooling import Elementwise, Pooling
from sparsetoken.learning.features import NONLINEARITIES
from sparsetoken.validation import choice

__all__ = [
    "AttentionClassifier",
    "ElementwiseAttentionClassifier",
]


class AttentionClassifier(Attending):
    """Softmax attention with a learnt query, then a linear readout.

    The features are f(X) = Xᵀ softmax(X q), tokens standardised. Two gradient steps give the query,
    a convex problem the readout (docs/theory.md, section 3), and `refine` continues from there with
    all parameters at once.

    Parameters
    ----------
    heads : int, default 1
        Queries, found one after another, each on what the ones before it left unexplained, or, if
        that ends better when refined, all at once, from the kinds of token that the first attends to.
    refine : True, False or "auto", default "auto"
        Whether to optimise queries, readout and bias jointly by L-BFGS. "auto" does so if that
        lowers the loss on held-out samples by more than half a standard error; without refinement
        the model is mean pooling, max or min pooling, all three, or the two-step query.
    tied : True, False or "auto", default "auto"
        Refinement with q = κ w (attention goes to the evidence itself: half the parameters) or with
        a query of its own (for tokens that are marked by something else than what they say). "auto"
        compares both on held-out samples. Without refinement it has no say, nor have `max_iter` and
        `tol`.
    sharpness : float or "auto", default "auto"
        Standard deviation of the scores X q within a sequence after the two steps (for white
        tokens, β‖q‖), where refinement starts. 0 is mean pooling. "auto" tries several.
    whiten : True, False or "auto", default "auto"
        Whether to whiten tokens, with shrinkage, rather than only standardise them: for tokens that
        share strong directions. "auto" does so if they are correlated and the two-step query, where
        that is among the candidates, gains from it on held-out samples; for d up to 1,024.
    split : float in (0, 1) or None, default None
        Share of the samples used for the query alone, the rest for the readout; None uses all for
        both.
    loss : str, default "logistic"
        One of `sparsetoken.loss_names()`; with `refine`, a smooth one.
    ridge : float or "auto", default "auto"
        Penalty (ridge/2)‖s w‖² beside the mean loss, where s is the spread of the features (when
        refined, of the tokens), and on q if it is refined and not tied. "auto" chooses from a path
        on held-out samples.
    class_weight : None, "balanced" or dict, default None
    max_iter : int, default 300
        Most iterations of L-BFGS for a head.
    tol : float, default 1e-5
        L-BFGS stops when two steps in a row improve the objective by less than this.
    verbose : bool, default False
        Whether to print how the fit goes on.
    length : int, optional
        Tokens in a row of a 2-D X; None for an X of another form.
    random_state : int, RandomState or None
        Decides which samples are split off, if `split` is given; nothing else is random.

    Attributes
    ----------
    classes_ : array of shape (classes,)
    queries_, coef_ : arrays of shape (problems, heads, d)
        q and w in standardised coordinates; one problem for two classes, else one for each class.
    intercept_, sharpness_, tied_ : arrays of shape (problems,)
        Biases, spreads of the fitted scores within a sequence, and whether q = κ w.
    mean_, scale_ : arrays of shape (d,)
        Location and scale of the tokens.
    extremes_ : array of shape (problems, 2, d), or None
        Readouts of the coordinates' maxima and minima, if these were chosen.
    family_, ridge_, candidates_
        What was chosen, and what it was compared with.
    n_iter_ : int

    Examples
    --------
    >>> from sparsetoken import AttentionClassifier, digit_bags
    >>> train, test = digit_bags(6, train=120, test=100)
    >>> model = AttentionClassifier(refine=False, ridge=0.01, sharpness=2.0).fit(train.X, train.y)
    >>> model.attention(test.X).shape, model.score(test.X, test.y) > 0.6
    ((100, 6), True)
    """

    def __init__(
        self,
        *,
        heads: int = 1,
        refine: bool | str = "auto",
        tied: bool | str = "auto",
        sharpness: float | str = "auto",
        whiten: bool | str = "auto",
        split: float | None = None,
        loss: str = "logistic",
        ridge: float | str = "auto",
        class_weight: Any = None,
        max_iter: int = 300,
        tol: float = 1e-5,
        verbose: bool = False,
        length: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.heads = heads
        self.refine = refine
        self.tied = tied
        self.sharpness = sharpness
        self.whiten = whiten
        self.split = split
        self.ridge = ridge
        self.loss = loss
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.length = length
        self.random_state = random_state


class ElementwiseAttentionClassifier(Attending):
    """Attention without normalisation: f(X) = (1/L) Xᵀ σ(X q), then a linear readout.

    For comparison with the softmax, which it falls behind when the signal is in few of many tokens
    (docs/theory.md, section 2). `attention` gives |σ| normalised to sum 1.

    Parameters
    ----------
    nonlinearity : "sigmoid", "tanh", "linear" or "exp", default "sigmoid"
        σ, token by token. The exponential is capped at e³⁰.
    heads, refine, tied, sharpness, whiten, split, loss, ridge, class_weight, max_iter, tol, \
verbose, length, random_state
        As in `AttentionClassifier`.

    Examples
    --------
    >>> from sparsetoken import ElementwiseAttentionClassifier, digit_bags
    >>> train, test = digit_bags(6, train=120, test=100)
    >>> model = ElementwiseAttentionClassifier(refine=False, ridge=0.01, sharpness=2.0)
    >>> model.fit(train.X, train.y).predict(test.X).shape
    (100,)
    """

    _checks: ClassVar[dict[str, Check]] = {
        **Attending._checks,
        "nonlinearity": lambda name, value: choice(name, value, NONLINEARITIES),
    }

    def __init__(
        self,
        *,
        nonlinearity: str = "sigmoid",
        heads: int = 1,
        refine: bool | str = "auto",
        tied: bool | str = "auto",
        sharpness: float | str = "auto",
        whiten: bool | str = "auto",
        split: float | None = None,
        loss: str = "logistic",
        ridge: float | str = "auto",
        class_weight: Any = None,
        max_iter: int = 300,
        tol: float = 1e-5,
        verbose: bool = False,
        length: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.nonlinearity = nonlinearity
        self.heads = heads
        self.refine = refine
        self.tied = tied
        self.sharpness = sharpness
        self.whiten = whiten
        self.split = split
        self.ridge = ridge
        self.loss = loss
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.length = length
        self.random_state = random_state

    def _pooling(self) -> Pooling:
        return Elementwise(self.nonlinearity)
