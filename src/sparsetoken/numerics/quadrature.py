"""Expectations over a standard normal variable, by Gauss-Legendre panels."""

from functools import lru_cache

import numpy as np

from sparsetoken.arrays import Array

__all__ = ["NORMAL_EDGES", "legendre", "normal_density", "normal_panels", "panels"]

# Beyond the outer edges the normal law weighs 2e-16; between two of them it is easy to integrate.
NORMAL_EDGES = np.array([-8.2, -5.5, -3.5, -1.7, 0.0, 1.7, 3.5, 5.5, 8.2])


@lru_cache
def legendre(order: int) -> tuple[Array, Array]:
    """Return the nodes and weights of the Gauss-Legendre rule on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(order)
    return 0.5 * (nodes + 1), 0.5 * weights


def panels(cuts: Array, order: int) -> tuple[Array, Array]:
    """Return Gauss-Legendre nodes and weights on the panels between increasing cuts.

    Parameters
    ----------
    cuts : array of shape (..., k)

    Returns
    -------
    nodes, weights : arrays of shape (..., (k - 1) order)
    """
    unit_nodes, unit_weights = legendre(order)
    widths = np.diff(cuts, axis=-1)[..., None]
    shape = (*cuts.shape[:-1], -1)
    nodes = cuts[..., :-1, None] + widths * unit_nodes
    return nodes.reshape(shape), (widths * unit_weights).reshape(shape)


def normal_panels(edges: Array, order: int = 8) -> tuple[Array, Array]:
    """Return nodes and weights for E f(G), G standard normal, with f smooth between given edges.

    The line is cut at `NORMAL_EDGES` and at the edges, so that a kink of f costs no accuracy.

    Parameters
    ----------
    edges : array of shape (..., k)
        Where f or its derivatives jump or change fast, for each of many integrals.
    order : int
        Nodes of a panel.

    Returns
    -------
    nodes, weights : arrays of shape (..., (k + 8) order)
    """
    base = np.broadcast_to(NORMAL_EDGES, (*edges.shape[:-1], len(NORMAL_EDGES)))
    clipped = np.clip(edges, NORMAL_EDGES[0], NORMAL_EDGES[-1])
    nodes, weights = panels(np.sort(np.concatenate([base, clipped], axis=-1), axis=-1), order)
    return nodes, weights * normal_density(nodes)


def normal_density(x: Array) -> Array:
    """Return the density of the standard normal law."""
    return np.asarray(np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi))
