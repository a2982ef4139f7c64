"""When can attention find a weak signal hidden in a few tokens, and is it worth it?

Public names are imported on first use, so that `import sparsetoken` costs next to nothing.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparsetoken.estimators import (
        AttentionClassifier,
        AttentionRegressor,
        Comparison,
        DigitBags,
        ElementwiseAttentionClassifier,
        FreeResponseCurve,
        PooledClassifier,
        TokenWise,
        VectorisedClassifier,
        compare,
        digit_bags,
        explain,
        free_response_curve,
        localisation_score,
        mask_tokens,
        plot_attention,
    )
    from sparsetoken.informative import (
        BinomialCount,
        CountLaw,
        CountTable,
        KeptCount,
        PoissonCount,
    )
    from sparsetoken.learning.features import features
    from sparsetoken.learning.readout import Readout, fit_readout
    from sparsetoken.learning.separability import Separability, separability
    from sparsetoken.learning.stages import TrainedModel, train
    from sparsetoken.losses import (
        Loss,
        check_loss,
        get_loss,
        loss_names,
        register_loss,
        unregister_loss,
    )
    from sparsetoken.numerics.solution import Solution, Status
    from sparsetoken.planning.diagnosis import Diagnosis, diagnose
    from sparsetoken.planning.finite_size import FiniteSize, finite_size
    from sparsetoken.planning.forecast import Forecast, forecast
    from sparsetoken.planning.phase_map import PhaseMap, phase_map
    from sparsetoken.planning.plan import Plan, plan
    from sparsetoken.planning.suggestion import suggest
    from sparsetoken.records import Curve
    from sparsetoken.simulation.descent import DescentTrials, simulate_descent
    from sparsetoken.simulation.joint import JointTrials, simulate_joint
    from sparsetoken.simulation.message_passing import (
        LearntDirection,
        MessagePassing,
        learn_direction,
        simulate_message_passing,
    )
    from sparsetoken.simulation.sampling import Sample, sample
    from sparsetoken.simulation.trials import Simulation, Trial, run_trial, simulate
    from sparsetoken.sweeps.run import run_cells, run_sweep
    from sparsetoken.sweeps.spec import Study, read_study
    from sparsetoken.sweeps.store import Store
    from sparsetoken.task import Query, Step, Task, Training
    from sparsetoken.theory.alignment import Alignment, align
    from sparsetoken.theory.capacity import Capacity, capacity, capacity_curve
    from sparsetoken.theory.descent import DescentState, descend
    from sparsetoken.theory.floor import Floor, HardPhase, floor, floor_curve, hard_phase
    from sparsetoken.theory.localisation import FreeResponse, Localisation, localise
    from sparsetoken.theory.oracle import (
        Oracle,
        RequiredStrength,
        oracle,
        required_strength,
        strength_curve,
    )
    from sparsetoken.theory.prediction import Prediction
    from sparsetoken.theory.predictor import curve, predict
    from sparsetoken.theory.ranking import CalibrationPoint, OperatingPoint, Ranking
    from sparsetoken.theory.shift import Shift, shift
    from sparsetoken.validation import ParameterError

__version__ = version("sparsetoken")

_HOMES = {
    "estimators": (
        "AttentionClassifier",
        "AttentionRegressor",
        "Comparison",
        "DigitBags",
        "ElementwiseAttentionClassifier",
        "FreeResponseCurve",
        "PooledClassifier",
        "TokenWise",
        "VectorisedClassifier",
        "compare",
        "digit_bags",
        "explain",
        "free_response_curve",
        "localisation_score",
        "mask_tokens",
        "plot_attention",
    ),
    "informative": ("BinomialCount", "CountLaw", "CountTable", "KeptCount", "PoissonCount"),
    "learning.features": ("features",),
    "learning.readout": ("Readout", "fit_readout"),
    "learning.separability": ("Separability", "separability"),
    "learning.stages": ("TrainedModel", "train"),
    "losses": (
        "Loss",
        "check_loss",
        "get_loss",
        "loss_names",
        "register_loss",
        "unregister_loss",
    ),
    "numerics.solution": ("Solution", "Status"),
    "records": ("Curve",),
    "simulation.descent": ("DescentTrials", "simulate_descent"),
    "simulation.joint": ("JointTrials", "simulate_joint"),
    "simulation.message_passing": (
        "LearntDirection",
        "MessagePassing",
        "learn_direction",
        "simulate_message_passing",
    ),
    "planning.diagnosis": ("Diagnosis", "diagnose"),
    "planning.finite_size": ("FiniteSize", "finite_size"),
    "planning.forecast": ("Forecast", "forecast"),
    "planning.phase_map": ("PhaseMap", "phase_map"),
    "planning.plan": ("Plan", "plan"),
    "planning.suggestion": ("suggest",),
    "simulation.sampling": ("Sample", "sample"),
    "simulation.trials": ("Simulation", "Trial", "run_trial", "simulate"),
    "sweeps.run": ("run_cells", "run_sweep"),
    "sweeps.spec": ("Study", "read_study"),
    "sweeps.store": ("Store",),
    "task": ("Query", "Step", "Task", "Training"),
    "theory.alignment": ("Alignment", "align"),
    "theory.capacity": ("Capacity", "capacity", "capacity_curve"),
    "theory.descent": ("DescentState", "descend"),
    "theory.floor": ("Floor", "HardPhase", "floor", "floor_curve", "hard_phase"),
    "theory.localisation": ("FreeResponse", "Localisation", "localise"),
    "theory.oracle": (
        "Oracle",
        "RequiredStrength",
        "oracle",
        "required_strength",
        "strength_curve",
    ),
    "theory.prediction": ("Prediction",),
    "theory.predictor": ("curve", "predict"),
    "theory.ranking": ("CalibrationPoint", "OperatingPoint", "Ranking"),
    "theory.shift": ("Shift", "shift"),
    "validation": ("ParameterError",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Alignment",
    "AttentionClassifier",
    "AttentionRegressor",
    "BinomialCount",
    "CalibrationPoint",
    "Capacity",
    "Comparison",
    "CountLaw",
    "CountTable",
    "Curve",
    "DescentState",
    "DescentTrials",
    "Diagnosis",
    "DigitBags",
    "ElementwiseAttentionClassifier",
    "FiniteSize",
    "Floor",
    "Forecast",
    "FreeResponse",
    "FreeResponseCurve",
    "HardPhase",
    "JointTrials",
    "KeptCount",
    "LearntDirection",
    "Localisation",
    "Loss",
    "MessagePassing",
    "OperatingPoint",
    "Oracle",
    "ParameterError",
    "PhaseMap",
    "Plan",
    "PoissonCount",
    "PooledClassifier",
    "Prediction",
    "Query",
    "Ranking",
    "Readout",
    "RequiredStrength",
    "Sample",
    "Separability",
    "Shift",
    "Simulation",
    "Solution",
    "Status",
    "Step",
    "Store",
    "Study",
    "Task",
    "TokenWise",
    "TrainedModel",
    "Training",
    "Trial",
    "VectorisedClassifier",
    "align",
    "capacity",
    "capacity_curve",
    "check_loss",
    "compare",
    "curve",
    "descend",
    "diagnose",
    "digit_bags",
    "explain",
    "features",
    "finite_size",
    "fit_readout",
    "floor",
    "floor_curve",
    "forecast",
    "free_response_curve",
    "get_loss",
    "hard_phase",
    "learn_direction",
    "localisation_score",
    "localise",
    "loss_names",
    "mask_tokens",
    "oracle",
    "phase_map",
    "plan",
    "plot_attention",
    "predict",
    "read_study",
    "register_loss",
    "required_strength",
    "run_cells",
    "run_sweep",
    "run_trial",
    "sample",
    "separability",
    "shift",
    "simulate",
    "simulate_descent",
    "simulate_joint",
    "simulate_message_passing",
    "strength_curve",
    "suggest",
    "train",
    "unregister_loss",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'sparsetoken' has no attribute {name!r}")
    value = getattr(import_module(f"sparsetoken.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
