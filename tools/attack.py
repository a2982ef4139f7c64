"""Try to break the package: ``python tools/attack.py [--minutes 30] [--seed 0] [--quick]``.

Random command lines over every option that the commands have, study files by grammar and by bytes,
stores by bytes, kills at random moments, odd arguments to public functions, and inequalities that
must hold between numbers. An attempt fails on a traceback, a wrong exit code, a run beyond its
time, a changed input file, or a number that cannot be. The same seed makes the same attempts.

Exit code 0 if nothing broke. The table that is printed at the end has a line for each kind.
"""

import argparse
import json
import math
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

SECONDS = 120.0  # for one attempt; only a hang takes so long, however busy the machine is
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
# Options whose larger values only make a command take longer: these, or beyond all limits.
COSTLY = {
    "dimension": "2 20 0 1000000000000",
    "trials": "1 2 0 -1 100000000000000000000",
    "fresh_test": "0 10 -1 100000000000000000000",
    "workers": "1 0 -1 20000 100000000",
    "points": "2 3 0 1 100000000000",
    "steps": "1 2 0 -1",
    "tolerance": "0.1 0.01 0 -1 nan",
    "retries": "0 -1 100000000000",
}
STUDY = """
classifiers = "pooled"
dimensions = 20
trials = 3
theory = false
[task]
length = 4
informative = 1
strength = [2, 4]
[training]
alpha0 = 2
alpha1 = 2
loss = "square"
"""


def commands(rng, folder):
    """Run a random command line; return what broke, or None."""
    import click
    from click.testing import CliRunner

    from sparsetoken.cli import main

    study = folder / "study.toml"
    if not study.exists():
        study.write_text(STUDY)
        fill(study)
    names = [n for n in main.commands if n not in ("explore", "reproduce")]
    words = [rng.choice(names)]
    command = main.commands[words[0]]
    if isinstance(command, click.Group):
        words.append(rng.choice([n for n in command.commands if n != "run"]))
        command = command.commands[words[-1]]
    if words[0] in ("simulate", "descend"):
        words += ["--dimension", "20", "--tolerance" if words[0] == "descend" else "--trials", "1"]
    for option in command.params:
        if isinstance(option, click.Argument):
            given = study if option.name == "study" else folder / rng.choice(["out.x", "", "a[/b]"])
            words.append(str(given))
        elif rng.random() < 0.25 and option.name not in ("help", "imports", "schedule"):
            words.append(option.opts[0])
            if not option.is_flag:
                words.append(value_of(rng, option, folder))
    if ("--over" in words or words[0] == "map") and "--points" not in words:
        words += ["--points", "2"]
    before = {path: path.read_bytes() for path in (study, folder / "study.sqlite")}
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


def value_of(rng, option, folder):
    """Return a value for an option, by its name and type."""
    import click

    if option.name in COSTLY:
        return rng.choice(COSTLY[option.name].split())
    if isinstance(option.type, click.Path):
        return str(
            folder / rng.choice(["p.svg", "p.png", "study.toml", "none/p.svg", "p[/b].pdf", ""])
        )
    if option.name == "over":
        return rng.choice(FIELDS)
    if isinstance(option.type, click.types.StringParamType):
        return rng.choice(WORDS)
    return rng.choice(NUMBERS)


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

    study = folder / "study.toml"
    if not study.exists():
        study.write_text(STUDY)
        fill(study)
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


def api(rng, _):
    """Call a public function or class with one odd argument: it must be refused as what it is."""
    import numpy as np

    import sparsetoken as st
    from sparsetoken.sweeps import SweepError, parse_study

    task, training = st.Task(4, 1, 2.0), st.Training(2.0, 2.0, ridge=0.1)
    features = np.random.default_rng(0).standard_normal((6, 3))
    labels = np.array([1, -1, 1, -1, 1, 1])
    calls = [
        (st.Task, {"length": 4, "informative": 1, "strength": 2.0, "positive_rate": 0.5}),
        (st.Training, {"alpha0": 1.0, "alpha1": 1.0, "loss": "square", "ridge": 0.1}),
        (st.Query, {"alignment": 0.5, "sharpness": 1.0}),
        (st.align, {"task": task, "training": training}),
        (st.predict, {"task": task, "training": training, "classifier": "pooled", "at": task,
                      "tolerance": 0.1}),
        (st.run_trial, {"task": task, "training": training, "dimension": 5, "trial": 0, "seed": 1,
                        "classifier": "pooled", "sampler": "reduced", "fresh_test": 3}),
        (st.separability, {"features": features, "labels": labels}),
        (st.fit_readout, {"features": features, "labels": labels, "loss": "square", "ridge": 0.1}),
        (parse_study, {"text": STUDY}),
    ]  # fmt: skip
    odd = [None, "x", "", -1, 0, 1, 10**30, 0.5, math.nan, math.inf, True, [], {}, (1, 2), 1j, b"x",
           object(), np.int64(3), np.float32(0.5), np.array(2), np.zeros((2, 2)), task, print,
           np.zeros((0, 3)), np.full((6, 3), np.nan), features * 1e-200, labels[:, None]]  # fmt: skip
    function, arguments = rng.choice(calls)
    name = rng.choice(list(arguments))
    value = rng.choice(odd)
    try:
        function(**{**arguments, name: value})
    except (ValueError, TypeError, MemoryError, SweepError):
        return None
    except Exception as error:  # noqa: BLE001 (that is what is looked for)
        return f"{function.__name__}({name}={str(value)[:40]}): {type(error).__name__}: {error}"
    return None


def inequalities(rng, _):
    """Compute numbers that cannot be in any order."""
    from sparsetoken import Task, Training, floor, oracle, predict

    length = rng.choice([2, 3, 10, 50, 1000])
    task = Task(
        length, rng.choice([1, min(2, length - 1)]), rng.uniform(0, 6), rng.uniform(0.02, 0.98)
    )
    worst = min(task.positive_rate, 1 - task.positive_rate)
    best = oracle(task, classifier="bayes")
    slack = 5 * best.uncertainty + 1e-9
    for classifier in ("attention", "pooled", "vectorised"):
        found = oracle(task, classifier=classifier)
        bar = 5 * found.uncertainty + slack
        if not best.error - bar <= found.error <= worst + bar:
            return f"{task} {classifier}: {best.error} <= {found.error} <= {worst} does not hold"
    stronger = oracle(task.replace(strength=task.strength + 0.5), classifier="bayes")
    if stronger.error > best.error + slack + 5 * stronger.uncertainty:
        return f"{task}: the Bayes error grows with the strength"
    training = Training(
        1.0, 10 ** rng.uniform(-1, 1.5), loss=rng.choice(["logistic", "square"]), ridge=0.1
    )
    for classifier in ("pooled", "vectorised"):
        found = predict(task, training, classifier=classifier, tolerance=1e-3)
        bar = 5 * found.uncertainty.test_error + slack
        if found.solution.converged and not best.error - bar <= found.test_error <= 1:
            return f"{task} {training} {classifier}: {found.test_error} is below {best.error}"
    if length <= 50:
        few, many = (floor(task, alpha, tolerance=1e-2).to_dict() for alpha in (1.0, 3.0))
        bar = 5 * sum(row.get("error_uncertainty") or 0.0 for row in (few, many)) + 1e-3
        if many["error"] > few["error"] + bar:
            return f"{task}: the floor grows with the samples"
    return None


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
        try:
            if self.connection.poll(SECONDS):
                return self.connection.recv()
            broke = f"takes more than {SECONDS:g} s"
        except (EOFError, OSError):
            broke = "the process died"
        self.end()
        return broke

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
