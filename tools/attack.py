"""Try to break the package: ``python tools/attack.py [--minutes 30] [--seed 0] [--quick]``.

Random command lines over every option that the commands have, study files by grammar and by bytes,
stores by bytes, kills at random moments, odd values for every parameter of every public function,
and inequalities that must hold between numbers. An attempt fails on a traceback, a wrong exit code, a run beyond its
time, a changed input file, or a number that cannot be. The same seed makes the same attempts.

Exit code 0 if nothing broke. The table that is printed at the end has a line for each kind.
"""

import argparse
import inspect
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import psutil
from attack_calls import STUDY, odd_values, public_calls

SECONDS = 120.0  # for one attempt, half of them of processor time; only a hang takes so long
PATIENCE = 4  # times as long by the clock, on a machine that is busy with other things
MEMORY = 8 * 2**30
NUMBERS = [
    "0",
    "1",
    "2",
    "3",
    "10",
    "-1",
    "0.5",
    "1e-12",
    "1e-9",
    "1e-6",
    "1e-3",
    "2.5",
    "100",
    "1e3",
    "1e6",
    "1e9",
    "1e30",
    "1e200",
    "1e308",
    "1e-320",
    "nan",
    "inf",
    "-inf",
    "9223372036854775807",
    "9223372036854775808",
    "100000000000000000000",
    "x",
]
PLAIN = ("0.1", "0.3", "0.5", "0.9", "1", "2", "3", "4", "8", "20")
WORDS = (
    "attention",
    "pooled",
    "vectorised",
    "elementwise",
    "bayes",
    "square",
    "hinge",
    "",
    "x[/b]",
)
FIELDS = ("strength", "length", "alpha", "alpha0", "alpha1", "positive_rate", "ridge", "nonsense")
VIEWS = ("learning", "query", "turning", "strength", "capacity", "map", "shift", "inside", "x")
# Options whose larger values only make a command take longer: these, or beyond all limits.
COSTLY = {
    "dimension": "2 20 0 1000000000000",
    "trials": "1 2 0 -1 100000000000000000000",
    "fresh_test": "0 10 -1 100000000000000000000",
    "workers": "1 0 -1 20000 100000000",
    "points": "2 3 0 1 100000000000",
    "steps": "1 2 0 -1",
    "tolerance": "0.1 0.01 0 -1 nan 1e-300 1e300",
    "retries": "0 -1 100000000000",
    "repeats": "1 2 0 -1 100000000000000000000",
    "splits": "1 2 0 -1 100000000000000000000",
    "cv": "2 3 0 -1 1000 100000000000000000000",
    "horizon": "1 2 8 0 nan inf 1e6 1e300",
    "dask": "nonsense tls://127.0.0.1:1 tcp://127.0.0.1:1 tcp://x:99999 127.0.0.1:x",
}


def commands(rng, folder):
    """Run a random command line; return what broke, or None."""
    import click
    from click.testing import CliRunner

    from sparsetoken.cli import main

    study, data = prepared(folder)
    # A page takes a second: fewer of these. Few options give numbers, many give messages.
    words = [rng.choice([name for name in main.commands if name != "explore"] * 4 + ["explore"])]
    share = rng.choice([0.04, 0.1, 0.25])
    command = main.commands[words[0]]
    if isinstance(command, click.Group):
        words.append(rng.choice(list(command.commands)))
        command = command.commands[words[-1]]
    for option in command.params:
        if isinstance(option, click.Argument):
            words += argument_of(rng, option, folder)
        elif rng.random() < share and option.name not in ("help", "imports"):
            words.append(rng.choice([*option.opts, *option.secondary_opts]))
            if not option.is_flag:
                words += [value_of(rng, option, folder, place) for place in range(option.nargs)]
    words += cheap(words, folder)
    before = {path: path.read_bytes() for path in (study, study.with_suffix(".sqlite"), data)}
    done = CliRunner().invoke(main, words)
    shown = " ".join(words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return f"{shown}: {last_line(done.exc_info)}"
    if done.exit_code not in (0, 1, 2):
        return f"{shown}: exit code {done.exit_code}"
    if any(path.read_bytes() != content for path, content in before.items()):
        return f"{shown}: changed its input"
    if done.exit_code == 0 and "--json" in words and words[0] != "sweep":
        try:
            json.loads(done.stdout, parse_constant=lambda _: 1 / 0)
        except (ValueError, ZeroDivisionError):
            return f"{shown}: what it printed is not JSON"
    return None


def prepared(folder):
    """Return a study with its store, and data for the commands that read them; made once."""
    import numpy as np

    study, data = folder / "study.toml", folder / "data.npz"
    if not data.exists():
        study.write_text(STUDY)
        fill(study)
        rng = np.random.default_rng(0)
        X, y = rng.standard_normal((60, 3, 2)), np.arange(60) % 2
        X[y == 1, 0] += 3
        np.savez(data, X=X, y=y)
        (folder / "steps.json").write_text('[{"alpha": 1, "readout_step": 1, "bias_step": 1}]')
    return study, data


def argument_of(rng, argument, folder):
    """Return what a command line gives for an argument."""
    if argument.name == "study":
        return [str(folder / rng.choice(["study.toml"] * 4 + ["data.npz", ""]))]
    if argument.name == "numbers":
        return rng.choice([[], ["5"], ["Q1", "3"], ["99"], ["-1"], ["x[/b]"]])
    if argument.name == "data" and rng.random() < 0.3:
        damaged = bytearray((folder / "data.npz").read_bytes())
        for _ in range(rng.choice([1, 3, 30])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        (folder / "damaged.npz").write_bytes(damaged)
        return [str(folder / "damaged.npz")]
    if argument.name == "data":
        return [str(folder / rng.choice(["data.npz"] * 4 + ["study.toml", "", "none.npz"]))]
    return [str(folder / rng.choice(["out.x", "", "a[/b]", "study.toml"]))]


def cheap(words, folder):
    """Return the options that keep a command short, where the line does not have them."""
    always = {
        "simulate": {"--dimension": "20", "--trials": "1"},
        "descend": {"--dimension": "20", "--tolerance": "1"},
        "map": {"--points": "2"},
        "shift": {"--points": "2"},
        "plan": {"--trials": "0", "--dimension": "20"},
        "forecast": {"--repeats": "1", "--no-backtest": None, "--workers": "1"},
        "diagnose": {"--cv": "2", "--splits": "1"},
        "explore": {"--export": str(folder / "page.html")},
        "reproduce": {"--list": None},
        "sweep": {"--store": str(folder / "run.sqlite"), "--workers": "1"}
        if "run" in words
        else {},
    }.get(words[0], {})
    if "--over" in words:
        always = {"--points": "2", **always}
    added = [(name, value) for name, value in always.items() if name not in words]
    return [word for pair in added for word in pair if word is not None]


def value_of(rng, option, folder, place=0):
    """Return a value for an option, by its name and type; `place` counts if it takes several."""
    import click

    if option.name in COSTLY:
        return rng.choice(COSTLY[option.name].split())
    if isinstance(option.type, click.Path):
        names = ["p.svg", "p.png", "study.toml", "none/p.svg", "p[/b].pdf", "", "steps.json", "p.x"]
        return str(folder / rng.choice(names))
    if option.name == "over" or (option.nargs > 1 and place == 0):
        return rng.choice(FIELDS)
    if option.name == "state":
        return f"view={rng.choice(VIEWS)}&{rng.choice(FIELDS)}={rng.choice(NUMBERS)}"
    if isinstance(option.type, click.Choice) and rng.random() < 0.8:
        return rng.choice(list(option.type.choices))
    if isinstance(option.type, click.types.StringParamType) and option.nargs == 1:
        return rng.choice(WORDS)
    return rng.choice(NUMBERS if rng.random() < 0.6 else PLAIN)


def studies(rng, _):
    """Read a study file that is broken by grammar or by bytes."""
    from sparsetoken.sweeps import StudyError, parse_study
    from sparsetoken.sweeps.run import study_fingerprint

    values = [
        *NUMBERS[:-1], "true", "'x'", "[]", "{}", "[1, 2]", "[[1]]", "1979-05-27", "[1, 1]",
        "1" * 5000, "[" * 3000 + "]" * 3000, "{ from = 1, to = 2, count = 1000000000 }",
        "{ from = 1e-300, to = 1e300, count = 3, scale = 'log' }", "{ from = 1, to = 2, count = 3 }",
        "{ from = -1e308, to = 1e308, count = 3 }", "[1, 'x', true]", '"\\u0000"',
    ]  # fmt: skip
    keys = ["trials", "dimensions", "seed", "classifiers", "zip", "title", "plot", "imports", '"a.b"',
            "sampler", "theory", "colour", "task", "training"]  # fmt: skip
    lines = STUDY.strip().splitlines()
    for _ in range(rng.choice([1, 1, 2, 4])):
        place = rng.randrange(len(lines))
        key = rng.choice([lines[place].split(" = ")[0], rng.choice(keys)])
        if rng.random() < 0.3:
            del lines[place]
        else:
            lines[place : place + rng.choice([0, 1])] = [f"{key} = {rng.choice(values)}"]
    raw = bytearray("\n".join(lines).encode())
    if rng.random() < 0.4:
        for _ in range(rng.choice([1, 5, 50])):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
    try:
        study = parse_study(raw.decode(errors="replace"))
        study_fingerprint(study)
        study.cells()[-1]
    except StudyError as error:
        return None if len(str(error)) < 5000 else f"a message of {len(str(error))} characters"
    return None


def stores(rng, folder):
    """Read a store with changed bytes: every row that comes back must be right."""
    from sparsetoken.sweeps import Store, StoreError
    from sparsetoken.sweeps.repair import inspect_store

    prepared(folder)
    sound = folder / "study.sqlite"
    with Store(sound) as store:
        right = {row[:4] for row in store.trials()}
    damaged = bytearray(sound.read_bytes())
    for _ in range(rng.choice([1, 1, 3, 30])):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    if rng.random() < 0.1:
        del damaged[rng.randrange(len(damaged)) :]
    path = folder / "damaged.sqlite"
    for old in folder.glob("damaged.sqlite*"):
        old.unlink()
    path.write_bytes(damaged)
    try:
        inspect_store(path)
        with Store(path) as store:
            store.counts(), store.errors()
            found = {row[:4] for row in store.trials()}
            list(store.theory_rows())
    except StoreError:
        return None
    return None if found <= right else "rows that were never stored"


def kills(rng, folder):
    """Kill a sweep at random moments, let it end, and compare with one that nothing happened to."""
    study = folder / "killed.toml"
    study.write_text(STUDY.replace("trials = 3", "trials = 40"))
    for old in folder.glob("killed.sqlite*"):
        old.unlink()
    words = [sys.executable, "-m", "sparsetoken", "sweep", "run", str(study), "--workers", "1"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for _ in range(2):
        driver = subprocess.Popen(words, **quiet)
        time.sleep(rng.uniform(0, 4))
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    code = subprocess.run(words, check=False, **quiet).returncode
    if code != 0:
        return f"exit code {code} after kills"
    fill(study, folder / "undisturbed.sqlite")
    return None if results(folder / "killed.sqlite") == results(
        folder / "undisturbed.sqlite"
    ) else "other rows after kills"  # fmt: skip


def api(rng, folder):
    """Spoil one argument of a public function: it must be refused as what it is."""
    from sparsetoken.sweeps import SweepError

    prepared(folder)
    if not PREPARED:
        PREPARED.append((public_calls(folder), odd_values()))
    calls, odd = PREPARED[0]
    called, function, arguments = rng.choice(calls)
    name = rng.choice(list(inspect.signature(function).parameters))
    value = rng.choice(odd)
    try:
        function(**{**arguments, name: value})
    except (ValueError, TypeError, MemoryError, SweepError):
        return None
    except Exception:  # noqa: BLE001 (that is what is looked for)
        return f"{called}({name}={str(value)[:40]}): {last_line(sys.exc_info())}"
    return None


PREPARED = []


def inequalities(rng, _):
    """Compute numbers that cannot be in any order."""
    from sparsetoken import Task

    length = rng.choice([2, 3, 10, 50, 1000])
    task = Task(
        length, rng.choice([1, min(2, length - 1)]), rng.uniform(0, 6), rng.uniform(0.02, 0.98)
    )
    return oracle_order(task) or (length <= 50 and learnt_order(rng, task)) or None


def oracle_order(task):
    """Compare errors with a known signal: Bayes' is the least, and none is above guessing."""
    from sparsetoken import oracle

    worst = min(task.positive_rate, 1 - task.positive_rate)
    best = oracle(task, classifier="bayes")
    slack = 5 * best.uncertainty + 1e-9
    for classifier in ("attention", "pooled", "vectorised"):
        found = oracle(task, classifier=classifier)
        bar = 5 * found.uncertainty + slack
        if not best.test_error - bar <= found.test_error <= worst + bar:
            return f"{task} {classifier}: {best.test_error} <= {found.test_error} <= {worst} does not hold"
    stronger = oracle(task.replace(strength=task.strength + 0.5), classifier="bayes")
    if stronger.test_error > best.test_error + slack + 5 * stronger.uncertainty:
        return f"{task}: the Bayes error grows with the strength"
    return None


def learnt_order(rng, task):
    """Compare learnt errors with the floor of as many samples, and with guessing.

    With the best bias none is above guessing. The floor falls with samples and strength.
    """
    from sparsetoken import Training, predict

    alpha0, alpha1 = 10 ** rng.uniform(-0.5, 1), 10 ** rng.uniform(-0.5, 1)
    loss = rng.choice(["logistic", "square"])
    training = Training(alpha0, alpha1, loss=loss, ridge=0.1, query_step=rng.choice([1.0, 20.0]))
    if rng.random() < 0.3:
        training = training.replace(alpha0=alpha1, reuse=True)
    total = alpha1 if training.reuse else alpha0 + alpha1
    worst = min(task.positive_rate, 1 - task.positive_rate)
    least, slack = floor_of(task, total)
    for change in ({"strength": task.strength + 0.5}, {}):
        other, bar = floor_of(task.replace(**change), total if change else 2 * total)
        if other > least + slack + bar:
            return f"{task} {total}: the floor grows with {'strength' if change else 'samples'}"
    for classifier in ("attention", "pooled", "vectorised"):
        found = predict(task, training, classifier=classifier, recalibrate=True, tolerance=1e-3)
        bar = 5 * found.uncertainty.test_error + slack
        if found.solution.converged and not least - bar <= found.test_error <= worst + bar:
            return (
                f"{task} {training} {classifier}: {least} <= {found.test_error} <= {worst} "
                "does not hold"
            )
    return None


def floor_of(task, alpha):
    """Return the least error of any learner, and five times its bar."""
    from sparsetoken import floor

    row = floor(task, alpha, tolerance=1e-2).to_dict()
    return row["test_error"], 5 * (row.get("test_error_uncertainty") or 0.0) + 1e-3


KINDS = {f.__name__: f for f in (commands, studies, stores, api, inequalities, kills)}
SHARE = {"commands": 5, "studies": 1, "stores": 1, "api": 1, "inequalities": 2, "kills": 2}
QUICK = {"commands": 60, "studies": 200, "stores": 100, "api": 300, "inequalities": 2, "kills": 0}


def fill(study, store=None):
    """Run a study in this process."""
    from concurrent.futures import ThreadPoolExecutor

    from sparsetoken.sweeps import read_study, run_sweep

    with ThreadPoolExecutor(1) as executor:
        run_sweep(read_study(study), store or study.with_suffix(".sqlite"), executor=executor)


def results(path):
    """Return what a store holds, without times."""
    from sparsetoken.sweeps import Store

    with Store(path) as store:
        return [row[:4] for row in store.trials()]


def last_line(info):
    """Return an exception and the line of the package that it comes from."""
    frames = [f for f in traceback.extract_tb(info[2]) if "sparsetoken" in f.filename]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{info[0].__name__}: {str(info[1])[:200]} ({place})"


def serve(connection, folder):
    """Do attempts in a process of its own, which may be killed when one hangs."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    os.chdir(folder)
    while True:
        kind, seed = connection.recv()
        try:
            broke = KINDS[kind](random.Random(seed), Path(folder))
        except BaseException as error:  # noqa: BLE001 (that is what is looked for)
            broke = last_line((type(error), error, error.__traceback__))
        connection.send(broke)


class Victim:
    """The process that is attacked; another one takes its place when it hangs or dies."""

    def __init__(self, folder):
        self.folder, self.process = folder, None

    def attempt(self, kind, seed):
        """Return what broke, or None."""
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.connection, other = context.Pipe()
            self.process = context.Process(
                target=serve, args=(other, str(self.folder)), daemon=False
            )
            self.process.start()
            other.close()
        self.connection.send((kind, seed))
        begin = self.processor_time()
        try:
            for _ in range(PATIENCE):
                if self.connection.poll(SECONDS):
                    return self.connection.recv()
                if self.processor_time() - begin > SECONDS / 2:
                    break
            broke = f"takes more than {SECONDS:g} s"
        except (EOFError, OSError):
            broke = "the process died"
        self.end()
        return broke

    def processor_time(self):
        """Return how many seconds the process has worked."""
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system

    def end(self):
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


def attack(seed, minutes, quick):
    """Return the number of attempts, seconds and failures of each kind."""
    tried, seconds, failures = Counter(), Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        victim = Victim(Path(folder))
        for kind, share in SHARE.items():
            end = time.monotonic() + 60 * minutes * share / sum(SHARE.values())
            while tried[kind] < QUICK[kind] if quick else time.monotonic() < end:
                start = time.monotonic()
                broke = victim.attempt(kind, f"{seed} {kind} {tried[kind]}")
                if broke:
                    failures.append((kind, tried[kind], broke))
                    print(f"{kind} {tried[kind]}: {broke}", flush=True)
                seconds[kind] += time.monotonic() - start
                tried[kind] += 1
        victim.end()
    return tried, seconds, failures


def main(words=None):
    """Attack, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=28.0, help="For all kinds together.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="A fixed number of cheap attempts.")
    given = parser.parse_args(words)
    tried, seconds, failures = attack(given.seed, given.minutes, given.quick)
    print("| kind | attempts | broke | seconds |\n|---|---|---|---|")
    for kind in KINDS:
        broke = sum(failure[0] == kind for failure in failures)
        print(f"| {kind} | {tried[kind]} | {broke} | {seconds[kind]:.0f} |")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
