"""Sweeps over grids of problems, kept in a store on disk, resumed after any interruption.

A study file (see `read_study`) and two calls::

    study = read_study("study.toml")
    run_sweep(study, "study.sqlite", workers=2)
    with Store("study.sqlite") as store:
        rows = list(store.rows())          # one dictionary a trial: settings and results

Below it is an engine that runs any importable function over any list of settings::

    def function(settings, trial):         # in a module that worker processes can import
        rng = np.random.default_rng([settings["seed"], trial])
        return {"value": settings["slope"] * rng.standard_normal()}

    cells = [{"slope": slope, "seed": 0} for slope in (1.0, 2.0)]
    run_cells(cells, "lines.sqlite", function=function, trials=10, workers=2)

A second call with the same arguments runs only what is missing; `trials` may be raised. The store
is bound to the cells and to the names of the functions: with others it is refused.
"""

from sparsetoken.sweeps.errors import StoreError, StudyError, SweepError
from sparsetoken.sweeps.local import LocalExecutor, WorkerDied
from sparsetoken.sweeps.run import Progress, run_cells, run_sweep
from sparsetoken.sweeps.spec import Study, parse_study, read_study
from sparsetoken.sweeps.store import Store, StudyCounts

__all__ = [
    "LocalExecutor",
    "Progress",
    "Store",
    "StoreError",
    "Study",
    "StudyCounts",
    "StudyError",
    "SweepError",
    "WorkerDied",
    "parse_study",
    "read_study",
    "run_cells",
    "run_sweep",
]
