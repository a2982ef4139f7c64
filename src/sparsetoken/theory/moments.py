"""Expectations over the noise of one margin: the Moreau envelope and its derivatives.

For a margin centred at c with noise σG and prox step t, r is the proximal point of ω = c + σG and
p = (ω - r)/t the slope of the loss there. The potential (docs/theory.md, section 5) needs the mean
envelope M(c, σ, t) = E[ℓ(r) + t p²/2] and its first and second derivatives:

    M_c = E p,        M_σ = E pG,        M_t = -E p²/2,
    M_cc = E D,       M_cσ = E DG,       M_σσ = E DG²,
    M_ct = -E pD,     M_σt = -E pDG,     M_tt = E p²D,        D = ℓ''(r)/(1 + t ℓ''(r)).
"""

import itertools
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from sparsetoken.arrays import Array
from sparsetoken.losses import Loss
from sparsetoken.numerics.quadrature import (
    NORMAL_EDGES,
    legendre,
    normal_density,
    normal_panels,
    panels,
)

__all__ = ["GRADIENT_MOMENTS", "MOMENTS", "Margin", "margin_moments", "moments_on_grid"]

# Names of the last axis of `margin_moments`. The first four give the gradient of the potential.
MOMENTS = ("loss", "p", "pG", "pp", "D", "DG", "DGG", "pD", "pDG", "ppD")
GRADIENT_MOMENTS = 4

# Ends of a grid's panels, in units of the noise: how far beyond its centres, and between them.
_BEYOND = NORMAL_EDGES[NORMAL_EDGES > 0]
_BETWEEN = 1.75
# From this range of centres on, in units of the noise, they had better not share their nodes.
_WIDEST = 150.0


@dataclass(frozen=True)
class Margin:
    """The margins of one readout, at points of a law: noise σ = Sρ and step t = S²χ + ε.

    Attributes
    ----------
    noise, step, smoothing : ρ, χ and ε
    order : nodes of a panel of the quadrature
    """

    loss: Loss
    noise: float
    step: float
    smoothing: float
    order: int

    def moments(self, centre: Array, scale: Array) -> Array:
        """Return all moments at centres and scales (n,): (n, 10)."""
        return margin_moments(self.loss, centre, *self._at(scale), self.order)

    def moments_on_grid(self, centre: Array, scale: Array, count: int) -> Array:
        """Return the first moments for all centres and all scales: (centres, scales, count)."""
        return moments_on_grid(self.loss, centre, *self._at(scale), self.order, count)

    def _at(self, scale: Array) -> tuple[Array, Array]:
        return self.noise * scale, self.step * scale**2 + self.smoothing


def margin_moments(loss: Loss, centre: Array, noise: Array, step: Array, order: int = 8) -> Array:
    """Return E of ℓ(r), p, pG, p², D, DG, DG², pD, pDG, p²D.

    Parameters
    ----------
    centre, noise, step : arrays of one shape (n,)
        c, σ > 0 and t > 0.

    Returns
    -------
    array of shape (n, 10), in the order of `MOMENTS`
    """
    if loss.piecewise_quadratic:
        return _piecewise_moments(loss, centre, noise, step)
    if loss.smooth:
        nodes, weights, value, p, stiffness = _over_proximal_point(loss, centre, noise, step, order)
    else:
        nodes, weights, value, p, stiffness = _over_noise(loss, centre, noise, step, order)
    wp, wd = weights * p, weights * stiffness
    wdg, wpd = wd * nodes, wd * p
    return np.stack(
        [
            np.einsum("ij,ij->i", weights, value),
            wp.sum(axis=1),
            np.einsum("ij,ij->i", wp, nodes),
            np.einsum("ij,ij->i", wp, p),
            wd.sum(axis=1),
            wdg.sum(axis=1),
            np.einsum("ij,ij->i", wdg, nodes),
            wpd.sum(axis=1),
            np.einsum("ij,ij->i", wpd, nodes),
            np.einsum("ij,ij->i", wpd, p),
        ],
        axis=1,
    )


def moments_on_grid(
    loss: Loss, centre: Array, noise: Array, step: Array, order: int = 8, count: int = len(MOMENTS)
) -> Array:
    """Return the first moments on a grid of centres and of pairs (noise, step).

    For a smooth loss all centres of a column share the nodes of r, and so the values of the loss:
    only the normal density is theirs. That pays unless the noise is far below their range.

    Parameters
    ----------
    centre : array of shape (rows,)
    noise, step : arrays of shape (columns,)
    count : int
        4, or 10 for all.

    Returns
    -------
    array of shape (rows, columns, count)
    """
    noise, step = noise[:, None], step[:, None]
    if not (loss.smooth and np.ptp(centre) <= _WIDEST * noise.min()):
        each = [column.ravel() for column in np.broadcast_arrays(centre, noise, step)]
        found = margin_moments(loss, each[0], each[1], each[2], order)
        return np.swapaxes(found.reshape(len(noise), len(centre), -1)[:, :, :count], 0, 1)
    ends = loss.rough_prox(_grid_edges(centre, noise), step)
    r, weights, value, p, curvature = _panels_of_loss(loss, ends, order)
    growth = 1 + step * curvature
    omega, units = (r + step * p) / noise, centre / noise
    d = curvature / growth
    functions = [value, p, p**2, d]
    if count > GRADIENT_MOMENTS:
        # Powers of ω around the middle of the centres, for the sake of digits.
        middle = 0.5 * (units.min(axis=1, keepdims=True) + units.max(axis=1, keepdims=True))
        around, units = omega - middle, units - middle
        functions += [d * p, d * p**2, d * around, d * p * around, d * around**2]
        omega = around
    density = normal_density(omega[:, None, :] - units[:, :, None])
    sums = density @ (np.stack(functions, axis=2) * (weights * growth / noise)[:, :, None])
    mean, slope, square, stiffness, *others = sums.T
    units, noise = units.T, noise.T
    # Stein's lemma: E pG = σ E dp/dω = σ E D.
    moments = [mean, slope, noise * stiffness, square]
    if count > GRADIENT_MOMENTS:
        pd, ppd, d1, pd1, d2 = others
        dgg = d2 - 2 * units * d1 + units**2 * stiffness
        moments += [stiffness, d1 - units * stiffness, dgg, pd, pd1 - units * pd, ppd]
    return np.stack(moments, axis=2)


def _grid_edges(centre: Array, noise: Array) -> Array:
    """Return ends of panels for ω, (columns, k), that suit all centres."""
    low, high = float(centre.min()), float(centre.max())
    count = 1 + int(np.ceil((high - low) / (_BETWEEN * noise.min())))
    between = np.broadcast_to(np.linspace(low, high, count), (len(noise), count))
    outer = (low - noise * _BEYOND[::-1], between, high + noise * _BEYOND)
    return np.concatenate(outer, axis=1)


def _panels_of_loss(
    loss: Loss, ends: Array, order: int
) -> tuple[Array, Array, Array, Array, Array]:
    """Return nodes of r between ends and breakpoints, weights, ℓ, ℓ' and ℓ''."""
    breakpoints = np.clip(np.array(loss.breakpoints), ends[:, :1], ends[:, -1:])
    r, weights = panels(np.sort(np.concatenate([ends, breakpoints], axis=1), axis=1), order)
    return r, weights, *loss.derivatives(r)


Nodes = tuple[Array, Array, Array, Array, Array]


def _over_proximal_point(loss: Loss, centre: Array, noise: Array, step: Array, order: int) -> Nodes:
    """Return nodes of G, weights, ℓ(r), p and D, for a smooth loss.

    The variable of integration is r itself: G = (r + tℓ'(r) - c)/σ is explicit, so that a prox is
    needed only for the ends of the panels, and the integrand is as smooth as the loss, for any t.
    """
    # Wherever the cuts are the integral is the same: they need not be the exact proximal points.
    ends = loss.rough_prox(centre[:, None] + noise[:, None] * NORMAL_EDGES, step[:, None])
    r, weights, value, p, curvature = _panels_of_loss(loss, ends, order)
    growth = 1 + step[:, None] * curvature
    nodes = (r + step[:, None] * p - centre[:, None]) / noise[:, None]
    weights = weights * normal_density(nodes) * growth / noise[:, None]
    return nodes, weights, value, p, curvature / growth


def _over_noise(loss: Loss, centre: Array, noise: Array, step: Array, order: int) -> Nodes:
    """Return nodes of G, weights, ℓ(r), p and D, for a loss with kinks, where r rests for a while."""
    points = np.array(loss.breakpoints)
    sides = [loss.slope(np.nextafter(points, end)) for end in (-np.inf, np.inf)]
    omegas = [points + step[:, None] * side for side in sides]
    edges = (np.concatenate(omegas, axis=1) - centre[:, None]) / noise[:, None]
    nodes, weights = normal_panels(edges, order)
    omega, t = centre[:, None] + noise[:, None] * nodes, step[:, None]
    r = loss.prox(omega, t)
    return nodes, weights, loss.value(r), (omega - r) / t, (1 - loss.prox_slope(omega, t)) / t


def _piecewise_moments(loss: Loss, centre: Array, noise: Array, step: Array) -> Array:
    """Return the moments in closed form: between the edges p is linear in G and D is constant.

    r lies on a quadratic piece of the loss, or rests at a kink between two of them.
    """
    margins = centre, noise, step
    moving = [_on_piece(piece, *margins) for piece in _quadratic_pieces(loss)]
    resting = [_kink(loss, kink, slopes, *margins) for kink, slopes in _kinks(loss)]
    return np.asarray(sum(moving + resting))


@dataclass(frozen=True)
class _QuadraticPiece:
    """ℓ(r) = value + slope s + curvature s²/2, s = r - reference, for r between two ends."""

    ends: tuple[float, float]
    reference: float
    value: float
    slope: float
    curvature: float

    def slope_at(self, margin: float) -> float:
        """Return ℓ' at a margin on the piece."""
        return self.slope + self.curvature * (margin - self.reference)


def _quadratic_pieces(loss: Loss) -> list[_QuadraticPiece]:
    """Return the pieces of a loss, each with an end that is finite, or 0, as its reference."""
    pieces = []
    for low, high in itertools.pairwise([-np.inf, *loss.breakpoints, np.inf]):
        reference = low if np.isfinite(low) else high if np.isfinite(high) else 0.0
        # At a kink the piece's own slope is that on its side.
        inside = np.array([np.nextafter(reference, high if np.isfinite(low) else low)])
        derivatives = (float(f(inside)[0]) for f in (loss.value, loss.slope, loss.curvature))
        pieces.append(_QuadraticPiece((low, high), reference, *derivatives))
    return pieces


def _kinks(loss: Loss) -> list[tuple[float, tuple[float, float]]]:
    """Return the breakpoints at which the slope jumps, each with the slopes on both sides."""
    sides = [(kink, loss.slope(np.nextafter(kink, [-np.inf, np.inf]))) for kink in loss.breakpoints]
    return [(kink, (left, right)) for kink, (left, right) in sides if right - left > _JUMP]


# Less is rounding, and no kink.
_JUMP = 1e-9


def _on_piece(part: _QuadraticPiece, centre: Array, noise: Array, step: Array) -> Array:
    """Return the moments over the interval of G on which r lies on a piece of the loss."""
    # r is at an end of the piece where ω = r + t ℓ'(r).
    omegas = (end if np.isinf(end) else end + step * part.slope_at(end) for end in part.ends)
    edges = [np.asarray(omega - centre) / noise for omega in omegas]
    # r - reference = (ω - reference - t slope)/(1 + t curvature), p = slope + curvature × that.
    gain = 1 / (1 + step * part.curvature)
    offset = (centre - part.reference - step * part.slope) * gain
    stretch = noise * gain
    slope = part.slope + part.curvature * offset
    piece = (slope, part.curvature * stretch, part.curvature * gain)
    return _piece(edges, piece, (part.value, part.slope, part.curvature, offset, stretch))


def _kink(
    loss: Loss,
    kink: float,
    slopes: tuple[float, float],
    centre: Array,
    noise: Array,
    step: Array,
) -> Array:
    """Return the moments over the interval of G on which r rests at a kink of the loss."""
    value = float(loss.value(np.array([kink]))[0])
    low, high = ((kink + step * side - centre) / noise for side in slopes)
    piece = ((centre - kink) / step, noise / step, 1 / step)
    closed = _piece([low, high], piece, (value, 0.0, 0.0, 0.0, 0.0))
    # On a short interval the closed form is a difference of nearly equal numbers.
    short = high - low < _SHORT
    if not np.any(short):
        return closed
    return np.where(short[:, None], _short_kink(value, slopes, low, high, step), closed)


# An interval of G on which eight nodes integrate the normal density to rounding.
_SHORT = 1.0
_SHORT_NODES = 8


def _short_kink(
    value: float, slopes: tuple[float, float], low: Array, high: Array, step: Array
) -> Array:
    """Return what `_kink` does by quadrature: p grows from one slope to the other, and D = 1/t."""
    unit_nodes, unit_weights = legendre(_SHORT_NODES)
    width = (high - low)[:, None]
    nodes = low[:, None] + width * unit_nodes
    weights = width * unit_weights * normal_density(nodes)
    p = slopes[0] + (slopes[1] - slopes[0]) * unit_nodes
    basis = np.stack(
        [np.ones_like(nodes), nodes, nodes**2, p + 0 * nodes, p * nodes, p**2 + 0 * nodes]
    )
    mass, g, gg, p1, pg, pp = np.einsum("kij,ij->ki", basis, weights)
    stiff = np.stack([mass, g, gg, p1, pg, pp], axis=1) / step[:, None]
    return np.concatenate([np.stack([value * mass, p1, pg, pp], axis=1), stiff], axis=1)


# Beyond it the normal density is 0 in floating point; infinite edges would give 0 × ∞.
_FARTHEST = 40.0


def _piece(
    edges: list[Array],
    piece: tuple[Array, Array, Array],
    quadratic: tuple[float, float, float, Array | float, Array | float],
) -> Array:
    """Return the moments over one interval of G, where p = piece[0] + piece[1] G, D = piece[2].

    There ℓ(r) = value + slope s + curvature s²/2 with s = offset + stretch G.
    """
    low, high = (np.clip(edge, -_FARTHEST, _FARTHEST) for edge in edges)
    density_low, density_high = (normal_density(x) for x in (low, high))
    # In the upper tail the difference of survival functions keeps its digits.
    upper = low > 0
    m0 = np.where(upper, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
    m1 = density_low - density_high
    m2 = m0 + low * density_low - high * density_high
    constant, linear, stiffness = piece
    p = constant * m0 + linear * m1
    pg = constant * m1 + linear * m2
    pp = constant**2 * m0 + 2 * constant * linear * m1 + linear**2 * m2
    value, slope, curvature, offset, stretch = quadratic
    s1 = offset * m0 + stretch * m1
    s2 = offset**2 * m0 + 2 * offset * stretch * m1 + stretch**2 * m2
    losses = value * m0 + slope * s1 + 0.5 * curvature * s2
    columns = [losses, p, pg, pp]
    columns += [stiffness * column for column in (m0, m1, m2, p, pg, pp)]
    return np.stack(columns, axis=1)
