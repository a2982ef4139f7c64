"""Claim 5: the query's misalignment falls as C/α0."""

import numpy as np

from sparsetoken.plotting import caption, draw_reference, look_of, new_figure
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.claims.c04_alignment import COMMON
from sparsetoken.reproduce.claims.c04_alignment import measurements as alignment_measurements
from sparsetoken.reproduce.evidence import AGREES, agreement, decide, power_law, within
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import label_axes, line_over_dots

__all__ = ["CLAIM"]


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for the same as claim 4, at larger sample ratios."""
    return alignment_measurements(settings)


def judge(table: Table) -> Verdict:
    """Compare slope and constant, in theory's own limit and in simulation."""
    theory = table.select(source="theory").ordered("alpha0")
    far = theory.where(lambda row: row["alpha0"] >= 1000)
    slope = power_law(far.column("alpha0"), far.column("misalignment"))
    constant = float(theory.column("rate_constant")[-1])
    ratio = Quantity(float(far.rows[-1]["alpha0"] * far.rows[-1]["misalignment"]) / constant)
    simulated = table.select(source="simulation").largest("dimension").ordered("alpha0")
    alpha0 = simulated.column("alpha0")
    mean, error = simulated.column("misalignment"), simulated.column("misalignment_uncertainty")
    simulated_slope = power_law(alpha0, mean, error)
    measured = Quantity(float(alpha0[-1] * mean[-1]), float(alpha0[-1] * error[-1]))
    relative = Quantity(measured.value / constant, (measured.uncertainty or 0.0) / constant)
    conditions = [
        within("theory: slope for α0 >= 1000", slope, -1.02, -0.98),
        within("theory: α0 (1 - |γ|) at the largest α0 over the formula's C", ratio, 0.98, 1.02),
        within("simulation: slope", simulated_slope, -1.1, -0.9),
        within("simulation: α0 (1 - |γ|) at the largest simulated α0 over C", relative, 0.9, 1.1),
        agreement("misalignment", table, "misalignment", ("alpha0",)),
    ]
    numbers = {
        "slope, theory": slope,
        "slope, simulation": simulated_slope,
        "C by the formula": Quantity(constant),
        "C measured in simulation": measured,
    }
    return decide(conditions, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw the misalignment against the sample ratio."""
    settings = table.settings
    figure, (panel,) = new_figure()
    line_over_dots(panel, table, "alpha0", "misalignment", look_of("query").named("1 - |γ|"))
    theory = table.select(source="theory").ordered("alpha0")
    alpha0 = theory.column("alpha0")
    draw_reference(
        panel,
        alpha0,
        theory.column("rate_constant")[-1] / alpha0,
        label="C/α0 by the formula",
        zorder=4,
        color="black",
    )
    label_axes(panel, "sample ratio α0 = n0/d", "misalignment of the query", log_x=True, log_y=True)
    panel.legend()
    text = caption(
        "One minus the cosine of query and signal after two gradient steps",
        {name: settings[name] for name in (*COMMON, "dimension")},
        settings["trials"],
    )
    return {"rate": Drawing(figure, text)}


CLAIM = Claim(
    number=5,
    name="rate",
    title="The query's misalignment falls as C/α0",
    statement="1 - |γ| = C/α0 + o(1/α0), where γ is the cosine of the query with the signal.",
    meaning=(
        "Ten times the data leave a tenth of the error in where attention looks. The formula for "
        "the constant says how much data a given precision costs."
    ),
    criterion=(
        "Theory: log-log slope -1 ± 0.02 for α0 >= 1000, and α0 (1 - |γ|) at the largest α0 within "
        "2 % of C. Simulation: slope -1 ± 0.1 over α0 >= 30, C within 10 %, and 1 - |γ| "
        f"{AGREES}."
    ),
    settings={
        "full": {
            **COMMON,
            "theory_ratios": np.geomspace(10, 1e5, 41).tolist(),
            "simulated_ratios": [30.0, 100.0, 300.0],
            "dimension": 400,
            "trials": 1150,
            "noticed": 0.01,
        },
        "quick": {
            **COMMON,
            "theory_ratios": np.geomspace(10, 1e5, 21).tolist(),
            "simulated_ratios": [30.0, 100.0, 300.0],
            "dimension": 400,
            "trials": 150,
            "noticed": 0.03,
        },
        "tiny": {
            **COMMON,
            "theory_ratios": [30.0, 1000.0, 1e4, 1e5],
            "simulated_ratios": [30.0, 100.0, 300.0],
            "dimension": 400,
            "trials": 10,
            "noticed": 0.3,
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
